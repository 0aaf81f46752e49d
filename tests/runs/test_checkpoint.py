"""The record of a training has a kind and a version, and a folder that an older btfl left is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.errors import StorageError
from btfl.runs.checkpoint import RunFolder, TrainingState
from btfl.storage import read_json, write_json

SPEC: dict[str, Any] = {"recipe": "fedavg", "settings": {"rounds": 3}, "clients": 2}


def state(round_: int) -> TrainingState:
    return TrainingState(round_, {"w": np.full(2, float(round_), np.float32)}, {}, ({"loss": 1.0},) * round_)


def test_the_record_names_its_kind_and_version(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.spec() is None
    run.begin(SPEC)
    record = read_json(tmp_path / "training.json")
    assert (record["kind"], record["version"], record["spec"]) == ("btfl training", 1, SPEC)
    assert RunFolder(tmp_path).spec() == SPEC
    assert not (tmp_path / "run.json").exists()


def test_a_folder_of_btfl_0_1_0_is_resumed(tmp_path: Path) -> None:
    before = RunFolder(tmp_path)
    before.save(state(2), {0: {"v": np.ones(1, np.float32)}})
    write_json(tmp_path / "run.json", SPEC)  # as it was written then
    run = RunFolder(tmp_path)
    run.begin(SPEC)
    assert not (tmp_path / "training.json").exists()
    found = run.load()
    assert found is not None
    assert found.round == 2
    assert found.private[0]["v"].tolist() == [1.0]
    with pytest.raises(StorageError, match=r"holds another run; it differs in settings.rounds \(3 there, 9 asked for"):
        run.check({**SPEC, "settings": {"rounds": 9}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 9}, "format version 9"),
        ({"kind": "btfl run"}, "not a btfl training"),
        ({"spec": None}, "lacks spec"),
    ],
)
def test_a_record_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    RunFolder(tmp_path).begin(SPEC)
    record = {**read_json(tmp_path / "training.json"), **change}
    (tmp_path / "training.json").write_text(json.dumps({k: v for k, v in record.items() if v is not None}))
    with pytest.raises(StorageError, match=said):
        RunFolder(tmp_path).check(SPEC)
