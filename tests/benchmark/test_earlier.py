"""A folder that has results: methods of the same experiment are added, and nothing is lost in silence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from btfl.benchmark.run import BenchRun, run_bench
from btfl.errors import InputError, StorageError, TooFewClientsError
from btfl.experiments.experiment import make_experiment
from btfl.recipes.pfedfda import PFedFda
from btfl.runs.layout import RunFiles
from btfl.runs.lock import locked

SMALL: dict[str, Any] = {"model": "mlp", "clients": 2, "samples": 200, "training": {"rounds": 1}}
FILES = ("results.parquet", "samples.parquet", "run.json")


def bench(folder: Path, methods: Sequence[str], *, overwrite: bool = False, **changes: Any) -> BenchRun:
    return run_bench(make_experiment({**SMALL, **changes, "methods": tuple(methods)}), folder, overwrite=overwrite)


def content(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


def test_one_after_the_other_gives_the_bytes_of_all_at_once(tmp_path: Path) -> None:
    bench(tmp_path / "parts", ["btfl", "personal"])
    bench(tmp_path / "parts", ["coherent"])
    done = bench(tmp_path / "parts", ["personal", "fedavg"])
    bench(tmp_path / "whole", ["btfl", "personal", "coherent", "fedavg"])
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert list(done.rows["method"].unique()) == ["btfl", "personal", "coherent", "fedavg"]


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    bench(tmp_path, ["btfl", "fedavg"])
    before = content(tmp_path)
    bench(tmp_path, ["btfl", "fedavg"])
    bench(tmp_path, ["fedavg"])
    assert content(tmp_path) == before


def diverging(*_: object) -> None:
    raise InputError("the head's weight holds NaN")


def test_a_training_that_fails_costs_its_own_methods_alone_and_they_are_added_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = ["pfedfda-release", "fedavg"]
    with monkeypatch.context() as broken:
        broken.setattr(PFedFda, "train", diverging)
        found = bench(tmp_path / "run", both)
        assert set(found.rows["method"]) == {"fedavg"}
        (note,) = (note for note in found.record["notes"] if "left out" in note)
        assert note.startswith(
            "pFedFDA (release) is left out: the training of pfedfda-release failed: round 1: only 0 of"
        )
        assert "the training of pfedfda-release failed" in caplog.text
        with pytest.raises(TooFewClientsError, match="the head's weight holds NaN"):
            bench(tmp_path / "alone", ["pfedfda-release"])
    again = bench(tmp_path / "run", both)
    assert set(again.rows["method"]) == set(both)
    assert not any("left out" in note for note in again.record["notes"])


def test_another_experiment_is_refused_and_names_what_would_be_lost(tmp_path: Path) -> None:
    bench(tmp_path, ["btfl", "fedavg"])
    before = content(tmp_path)
    with pytest.raises(
        InputError, match=r"another experiment \(draw.*those of btfl, fedavg would be lost.*--overwrite"
    ):
        bench(tmp_path, ["fedavg"], draw=1)
    assert content(tmp_path) == before
    assert set(bench(tmp_path, ["fedavg"], draw=1, overwrite=True).rows["method"]) == {"fedavg"}


def test_results_that_cannot_be_read_are_not_replaced_in_silence(tmp_path: Path) -> None:
    bench(tmp_path, ["fedavg"])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StorageError, match=r"cannot be added to: .*damaged.*--overwrite"):
        bench(tmp_path, ["fedavg"])
    bench(tmp_path, ["fedavg"], overwrite=True)


def test_a_method_whose_module_is_gone_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_earlier.py").write_text("from btfl.methods.heads import GlobalHead as Mine\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        bench(tmp_path / "run", ["mine_for_earlier:Mine"])
    sys.modules.pop("mine_for_earlier")
    done = bench(tmp_path / "run", ["btfl"])
    assert list(done.rows["method"].unique()) == ["mine_for_earlier:Mine", "btfl"]
    assert [one["name"] for one in done.record["methods"]] == ["mine_for_earlier:Mine", "btfl"]


def test_two_at_once_do_not_lose_each_others_methods(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    bench(tmp_path, ["btfl"])
    before = content(tmp_path)
    with locked(tmp_path, files.lock, files.holder), pytest.raises(StorageError, match="another process is at work in"):
        bench(tmp_path, ["fedavg"])
    assert content(tmp_path) == before
    assert set(bench(tmp_path, ["fedavg"]).rows["method"]) == {"btfl", "fedavg"}
    assert not files.lock.exists()
    assert not files.holder.exists()
