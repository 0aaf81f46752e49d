"""The whole benchmark on signals and vectors with natural clients: what is there, what is left out, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from btfl.benchmark.run import BenchRun, run_bench
from btfl.errors import InputError
from btfl.experiments.experiment import make_experiment
from btfl.runs.saved import load_run
from btfl.studies.drift.scenarios import ScenarioSettings, open_run, run_scenarios

CLASSES, CLIENTS, EACH = 3, 4, 60


def people(folder: Path, steps: int = 0, **more: Any) -> Path:
    """An npz of people who differ a little; the last one has a single class."""
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(CLIENTS), EACH)
    y = np.where(client == CLIENTS - 1, 1, np.arange(len(client)) % CLASSES)
    means = rng.normal(size=(CLASSES, 6)) * 2 + rng.normal(size=(CLIENTS, 1, 6)) / 2
    of_each = means[client, y]
    x = (
        of_each[:, None] + rng.normal(size=(len(client), steps, 6))
        if steps
        else of_each + rng.normal(size=of_each.shape)
    )
    path = folder / "people.npz"
    np.savez(path, x=x, y=np.array(["lie", "run", "sit"])[y], client=client, **more)
    return path


def bench(path: Path, folder: Path, **changes: Any) -> BenchRun:
    values: dict[str, Any] = {
        "dataset": "arrays", "root": str(path), "partition": "natural", "model": "mlp",
        "methods": ("fedavg", "personal", "btfl", "coherent", "oracle"), "training": {"rounds": 2},
    }  # fmt: skip
    return run_bench(make_experiment({**values, **changes}), folder)


def test_vectors_without_another_domain_have_no_shifted_streams(tmp_path: Path) -> None:
    run = bench(people(tmp_path), tmp_path / "run")
    assert set(run.rows["stream"]) == {"original_ind", "original_exd", "synthetical", "switching"}
    assert run.rows["client"].nunique() == CLIENTS  # the one with a single class among them
    clients = pd.read_csv(tmp_path / "run" / "clients.csv")
    assert clients["name"].tolist() == list(range(CLIENTS))
    assert clients[["train", "validation", "test"]].sum(axis=1).tolist() == [EACH] * CLIENTS
    saved = load_run(tmp_path / "run")
    assert any("B and D are left out, and E is half A and half C" in note for note in saved.notes)
    assert saved.record["streams"]["left_out"] == ["shifted_ind", "shifted_exd"]
    assert saved.record["streams"]["corruptions"] == []
    assert saved.record["data"]["kind"] == "vectors"
    mixed = saved.samples.query("stream == 'synthetical' and method == 'btfl'")
    assert mixed["external"].mean() == 0.5
    assert len(mixed) == sum(12 // 2 * 2 for _ in range(CLIENTS))
    again = open_run(tmp_path / "run", ("btfl",))
    (first, *_) = run_scenarios(again, ("switch-50",), ScenarioSettings(length=100, shifted=True), {})
    assert first["samples"].tolist() == [100]


def test_a_second_domain_is_all_of_the_shifted_streams_of_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shift: dict[str, Any] = {
        "x_shift": rng.normal(size=(40, 6)),
        "y_shift": np.array(["lie", "run"])[np.arange(40) % 2],
    }
    run = bench(people(tmp_path, **shift), tmp_path / "run")
    assert {"shifted_ind", "shifted_exd"} <= set(run.rows["stream"])
    for client in run.manifest.clients:
        for draw in (client.draws[1], client.draws[3]):
            assert (draw.origin == 1).all()
            assert (draw.corruption == -1).all()
    lengths = run.rows.query("method == 'btfl'").pivot(index="client", columns="stream", values="samples")
    assert (lengths["shifted_ind"][:-1] < lengths["original_ind"][:-1]).all()  # 'sit' is nowhere in the other domain


def test_signals_are_corrupted_as_sensors_are_and_image_methods_left_out(tmp_path: Path) -> None:
    path = people(tmp_path, steps=8)
    run = bench(path, tmp_path / "run", split="ordered", methods=("fedavg", "btfl", "memo", "ttt", "coherent"))
    assert set(run.rows["method"]) == {"fedavg", "btfl", "coherent"}
    assert set(run.rows["stream"]) >= {"shifted_ind", "shifted_exd"}
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["streams"]["corruptions"][:2] == ["noise", "gain"]
    assert "MEMO is left out: it is for images only" in record["notes"]
    assert not any("split at random" in note for note in record["notes"])
    assert record["experiment"]["clients"] is None
    assert record["data"]["clients"] == CLIENTS
    with pytest.raises(InputError, match="none of the methods can be used on signals"):
        bench(path, tmp_path / "other", methods=("memo",))
    with pytest.raises(InputError, match="signals of 8x6 cannot have the corruption 'fog'; known are noise"):
        bench(path, tmp_path / "other", corruptions=("fog",))


@pytest.mark.parametrize(("steps", "model"), [(0, "mlp"), (64, "cnn1d")])
def test_a_model_that_is_not_named_is_the_one_for_the_kind_of_samples(steps: int, model: str, tmp_path: Path) -> None:
    values = {"dataset": "arrays", "root": str(people(tmp_path, steps)), "partition": "natural", "methods": ("btfl",)}
    run = run_bench(make_experiment({**values, "training": {"rounds": 1}}), tmp_path / "run")
    assert run.record["experiment"]["model"] == model
    assert set(run.rows["model"]) == {model}


def test_the_same_run_goes_on_and_other_owners_are_another_run(tmp_path: Path) -> None:
    path = people(tmp_path)
    first = bench(path, tmp_path / "run", methods=("fedavg",))
    second = bench(path, tmp_path / "run", methods=("btfl",))
    assert list(second.rows["method"].unique()) == ["fedavg", "btfl"]
    assert first.record["run"] != second.record["run"]
    with np.load(path) as arrays:
        np.savez(path, **{**arrays, "client": (arrays["client"] + 1) % CLIENTS})
    with pytest.raises(InputError, match="differ"):
        bench(path, tmp_path / "run", methods=("personal",))
