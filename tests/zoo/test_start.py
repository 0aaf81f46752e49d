"""A run can start from another's weights, or from an entry of the zoo, and comes to the same results."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from btfl.benchmark.run import BenchRun, run_bench
from btfl.cli import main
from btfl.cli.collect import collect
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.files import read_preset
from btfl.report.groups import group_runs, load_runs
from btfl.report.tables import accuracy_notes
from btfl.runs.checkpoint import RunFolder
from btfl.runs.start import Start
from btfl.storage import read_json, write_json
from btfl.zoo import start

SMALL: dict[str, Any] = {
    **read_preset("demo"),
    "clients": 3,
    "samples": 300,
    "shift": "none",
    "methods": ("fedavg", "fedavg-ft", "knn-per", "btfl", "coherent"),
    "training": {"rounds": 2, "local_epochs": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    return run_bench(make_experiment(SMALL), tmp_path_factory.mktemp("bench") / "run")


@pytest.fixture(scope="module")
def entry(run: BenchRun, tmp_path_factory: pytest.TempPathFactory) -> start.ZooEntry:
    told = {"btfl": "0", "commit": "", "date": "2026-11-15", "machine": "a machine", "note": ""}
    return start.pack(run.folder, "small", tmp_path_factory.mktemp("zoo"), told)


def again(found: Start, folder: Path, **changes: Any) -> BenchRun:
    return run_bench(Experiment(**{**found.experiment, **changes}), folder, start=found)


def test_an_entry_gives_the_same_bytes_without_training(run: BenchRun, entry: start.ZooEntry, tmp_path: Path) -> None:
    events = []
    found = start.find_start(str(entry.folder))
    done = run_bench(
        Experiment(**found.experiment), tmp_path, start=found, watch=lambda recipe, event: events.append(event.stage)
    )
    assert "train" not in events
    for name in ("results.parquet", "samples.parquet"):
        assert (tmp_path / name).read_bytes() == (run.folder / name).read_bytes()
    assert done.record["notes"][-1] == "Trained weights are those of zoo:small."  # and no note on other digests
    assert sum(path.stat().st_size for path in entry.folder.iterdir()) < 100_000


def test_the_table_says_what_is_trained_after_loading(run: BenchRun, entry: start.ZooEntry, tmp_path: Path) -> None:
    done = again(entry, tmp_path)
    said, before = (
        [note for note in accuracy_notes(group) if "another make of processor" in note]
        for one in (done, run)
        for group in group_runs(load_runs([one.folder]))
    )
    assert before == []  # all of it was trained there
    (note,) = said
    assert note.endswith("processor: FedAvg+FT.")


def test_a_run_is_a_start_too_and_methods_and_streams_may_differ(run: BenchRun, tmp_path: Path) -> None:
    found = start.find_start(str(run.folder))
    done = again(found, tmp_path, methods=("btfl", "btfl[prune_above=5]"), severity=1)
    before, after = (pd.read_parquet(one.folder / "results.parquet") for one in (run, done))
    clean = {"method": "btfl", "stream": "original_ind"}
    chosen = [frame[(frame[list(clean)] == pd.Series(clean)).all(axis=1)]["correct"] for frame in (before, after)]
    assert chosen[0].tolist() == chosen[1].tolist()
    assert set(after["method"]) == {"btfl", "btfl[prune_above=5]"}


def test_a_recipe_that_differs_at_the_end_alone_needs_no_rounds_of_its_own(
    run: BenchRun, entry: start.ZooEntry, tmp_path: Path
) -> None:
    events: list[tuple[str, str]] = []
    experiment = make_experiment({**SMALL, "methods": ("ttt-release", "fedavg")})
    scratch = run_bench(experiment, tmp_path / "scratch", watch=lambda name, event: events.append((name, event.stage)))
    assert ("fedavg", "train") in events
    assert ("ttt-release", "train") not in events
    from_run = again(start.find_start(str(run.folder)), tmp_path / "run", methods=("ttt-release", "fedavg"))
    from_zoo = again(entry, tmp_path / "zoo", methods=("ttt-release", "fedavg"))
    for one in (from_run, from_zoo):
        assert (one.folder / "results.parquet").read_bytes() == (scratch.folder / "results.parquet").read_bytes()
        assert not any("last bits" in note for note in one.record["notes"])
    told = {"btfl": "0", "commit": "", "date": "2026-11-16", "machine": "a machine", "note": ""}
    whole = start.pack(scratch.folder, "once", tmp_path / "packed", told)
    assert whole.recipes == ("fedavg",)
    assert whole.experiment["methods"] == ["ttt-release", "fedavg"]
    assert whole.clients == 3
    other = start.pack(scratch.folder, "other", tmp_path / "packed", told, ["ttt-release"])
    assert other.recipes == ("ttt-release",)
    assert other.experiment["methods"] == ["ttt-release"]  # FedAvg's own end is not in it
    shared = start.pack(scratch.folder, "shared", tmp_path / "packed", told, ["fedavg"])
    assert shared.experiment["methods"] == ["ttt-release", "fedavg"]
    with pytest.raises(UnknownNameError, match=r"unknown recipe trained in .*'fedrep'.* Known: fedavg, ttt-release"):
        start.pack(scratch.folder, "none", tmp_path / "packed", told, ["fedavg", "fedrep"])
    assert not (tmp_path / "packed" / "none").exists()


@pytest.mark.parametrize("step", ["begin", "save"])
def test_an_interruption_while_weights_are_written_does_not_lead_to_training(
    step: str, entry: start.ZooEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    experiment, stages = Experiment(**{**entry.experiment, "methods": ("fedavg",)}), []
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, step, killed)
        with pytest.raises(KeyboardInterrupt):
            run_bench(experiment, tmp_path, start=entry)
    run_bench(experiment, tmp_path, start=entry, watch=lambda name, event: stages.append(event.stage))
    assert set(stages) == {"describe", "calibrate", "conclude", "evaluate"}


def test_another_digest_is_said(entry: start.ZooEntry, tmp_path: Path) -> None:
    card = {**entry.card, "recipes": {"fedavg": {"rounds": 2, "sha256": "0" * 64}}}
    done = again(start.ZooEntry(entry.folder, card), tmp_path)
    assert "last bits" in done.record["notes"][-1]


def test_what_cannot_start_is_refused(entry: start.ZooEntry, run: BenchRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was trained with fedavg only"):
        again(entry, tmp_path / "a", methods=("fedthe",))
    with pytest.raises(InputError, match=r"other settings: .*alpha \(0.2 there, 0.7 asked for\)"):
        again(entry, tmp_path / "b", alpha=0.7)
    assert not (tmp_path / "b" / "training").exists()
    with pytest.raises(UnknownNameError, match="entry of the zoo"):
        start.find_start("zoo:no-such-thing")
    with pytest.raises(StorageError, match="not a finished run"):
        start.find_start(str(tmp_path))
    with pytest.raises(InputError, match="a preset is a whole experiment"):
        collect({"preset": "demo", "start": str(run.folder)})


def test_a_damaged_entry_is_named(entry: start.ZooEntry, tmp_path: Path) -> None:
    for path in entry.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (weights,) = tmp_path.glob("fedavg-*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StorageError, match="damaged"):
        again(start.find_start(str(tmp_path)), tmp_path / "run")
    write_json(tmp_path / start.CARD, {**read_json(tmp_path / start.CARD), "version": 99})
    with pytest.raises(StorageError, match="card"):
        start.find_start(str(tmp_path))


def test_a_file_beside_a_start_says_what_is_different(run: BenchRun, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('name = "other"\nmethods = ["btfl", "btfl[count=after]"]\n')
    chosen = collect({"experiment": tmp_path / "other.toml", "start": str(run.folder)})
    assert chosen.name == "other"
    assert chosen.methods == ("btfl", "btfl[count=after]")
    assert chosen.training == run.experiment.training
    assert chosen.clients == run.experiment.clients


def test_the_command_packs_what_is_asked_for_and_says_what_was_trained(
    run: BenchRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["btfl", "zoo", *words])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit):
            main()
        return "".join(capfd.readouterr())

    words = ("pack", str(run.folder), "light", "--into", str(tmp_path), "--recipe", "fedavg", "--no-serving")
    assert "3 clients, dirichlet 0.2, honest split" in said(*words)
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "light").iterdir()) == [
        "card.json", "fedavg", "fedavg.json",
    ]  # fmt: skip
    assert "'fedavgg'. Did you mean fedavg? Known: fedavg." in said(*words[:5], "--recipe", "fedavgg")
    assert "30 clients, natural, ordered split" in said("list")


def test_an_entry_can_be_given_what_a_server_needs(run: BenchRun, entry: start.ZooEntry, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="btfl[onnx] is not installed")
    from btfl.export.serving import pack_serving
    from btfl.methods.coherent import Coherent
    from btfl.runs.layout import RunFiles
    from btfl.runs.trained import TrainedFederation
    from btfl.zoo.serving import load_serving

    folder = tmp_path / "small"
    shutil.copytree(entry.folder, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shared = entry.end_of_training("fedavg")[1].shared
    pack_serving(run.folder, folder, shared)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 3
    federation = TrainedFederation.load(RunFiles(run.folder).trained()["fedavg"].folder)
    for number, bundle in load_serving(folder).bundles.items():
        whole = federation.outcome(number).bundle
        features = whole.statistic("train_features")
        assert (Coherent(bundle).predict(features) == Coherent(whole).predict(features)).all()
    pack_serving(run.folder, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == after
    with pytest.raises(InputError, match="other weights"):
        pack_serving(run.folder, folder, {name: array + 1 for name, array in shared.items()})
