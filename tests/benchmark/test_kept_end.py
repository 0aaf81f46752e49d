"""With weights from elsewhere, the end of training is made once; a second run takes the same bytes from the kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.benchmark.kept_end import KeptEnd, can_be_kept
from btfl.benchmark.run import BenchRun, run_bench
from btfl.data.kept import FOLDER, LIMIT, Kept
from btfl.engines import LocalEngine
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.files import read_preset
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.runs.checkpoint import RunFolder
from btfl.runs.layout import RunFiles
from btfl.runs.start import RunStart, last_state

SMALL: dict[str, Any] = {
    **read_preset("demo"),
    "clients": 3,
    "samples": 200,
    "shift": "none",
    "methods": ("fedavg-ft", "coherent"),
    "training": {"rounds": 1, "local_epochs": 1},
}
END = {"describe", "calibrate", "conclude"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    return run_bench(make_experiment(SMALL), tmp_path_factory.mktemp("bench") / "run")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    monkeypatch.setenv(LIMIT, "100")
    return Kept.usual()


def again(run: BenchRun, folder: Path) -> set[str]:
    """Run from the weights of another run; return the stages that were gone through."""
    stages: set[str] = set()
    start = RunStart(run.folder, run.record["experiment"])
    experiment = Experiment(**run.record["experiment"])
    run_bench(experiment, folder, start=start, watch=lambda recipe, event: stages.add(event.stage))
    return stages


def files(folder: Path) -> dict[str, bytes]:
    names = ("results.parquet", "samples.parquet", "run.json", "training/*/final/**/*")
    found = [path for name in names for path in folder.glob(name) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_second_run_makes_no_end_and_comes_to_the_same_bytes(run: BenchRun, kept: Kept, tmp_path: Path) -> None:
    assert again(run, tmp_path / "first") >= END
    assert not END & again(run, tmp_path / "second")
    assert files(tmp_path / "second") == files(tmp_path / "first")
    assert len(files(tmp_path / "first")) > 3 + 3 * 4
    assert b'"event": "kept"' in RunFiles(tmp_path / "second").training("fedavg").log.read_bytes()
    kept.clean()
    assert again(run, tmp_path / "third") >= END
    assert files(tmp_path / "third") == files(tmp_path / "first")


def test_other_weights_have_another_end(run: BenchRun, kept: Kept, tmp_path: Path) -> None:
    again(run, tmp_path / "first")
    folder = RunFiles(tmp_path / "first").training("fedavg").folder
    state, spec = last_state(folder), RunFolder(folder).spec()
    assert spec is not None
    assert not KeptEnd(folder, spec, kept).restore()  # there is an end already
    nearly = {name: np.nextafter(array, np.float32(np.inf)) for name, array in state.shared.items()}
    private = {client: RunFolder(folder).load_private(client, state.round) for client in state.private}
    assert private
    for name, weights, of_clients, found in (
        ("same", state.shared, private, True),
        ("shared", nearly, private, False),
        ("private", state.shared, {**private, 0: private[1]}, False),
    ):
        RunFolder(tmp_path / name).save(replace(state, shared=weights, private={}), of_clients)
        assert KeptEnd(tmp_path / name, spec, kept).restore() is found
    RunFolder(tmp_path / "spec").save(replace(state, private={}), private)
    assert not KeptEnd(tmp_path / "spec", {**spec, "clients": 4}, kept).restore()


@pytest.mark.parametrize(
    ("changes", "device"),
    [({"privacy": "summary", "epsilon": 1.0, "delta": 1e-5}, "cpu"), ({"secure": True}, "cpu"), ({}, "auto")],
)
def test_noise_sums_that_nobody_sees_and_graphics_cards_are_left_out(changes: dict[str, Any], device: str) -> None:
    usual, other = (
        make_recipe("fedavg", TrainingSettings.for_model("mlp", **one), (8, 8, 1), 10) for one in ({}, changes)
    )
    assert can_be_kept(usual, LocalEngine())
    assert not can_be_kept(other, LocalEngine(device=device))
