"""DP-SGD on every engine: the same bytes, what is sent, what is written down, and what a run may not do after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")
pytest.importorskip("opacus", reason="the extra `privacy` is not installed")
pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from btfl.engines import FaultSettings, LocalEngine, train_federation
from btfl.engines.accounting import Release, epsilon_of
from btfl.engines.base import Broadcast, Job, perform
from btfl.errors import StorageError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.flower.client_app import make_client_app
from btfl.flower.session import GridEngine
from btfl.flower.task import FlowerTask
from btfl.recipes.base import Update
from btfl.runs.trained import TrainedFederation
from in_process_grid import InProcessGrid

TRAINING: dict[str, Any] = {
    "rounds": 2,
    "local_epochs": 1,
    "finetune_epochs": 0,
    "batch": 64,
    "privacy": "full",
    "privacy_unit": "record",
    "privacy_mechanism": "dp-sgd",
    "client_samples": 150,
    "privacy_noise": "seeded",
    "feature_radius": 14.0,
}


def experiment(**changes: Any) -> Experiment:
    about = {"dataset": "digits", "shift": "none", "clients": 4, "alpha": 1.0, "model": "mlp", "seed": 3}
    about |= {"model_options": {"hidden": 8}}
    return make_experiment(about | {"training": {**TRAINING, **changes}})


def task(folder: Path, **changes: Any) -> FlowerTask:
    return FlowerTask.of(experiment(**changes), "fedavg", folder / "flower", FaultSettings())


def on_flower(folder: Path, **changes: Any) -> TrainedFederation:
    grid = InProcessGrid(make_client_app(task(folder, **changes)), range(4))
    engine = GridEngine(grid, FaultSettings(), folder / "flower" / "clients")
    return train_federation(*task(folder, **changes).make(), engine, folder=folder / "run")


def here(folder: Path, workers: int = 1, **changes: Any) -> TrainedFederation:
    return train_federation(*task(folder, **changes).make(), LocalEngine(workers), folder=folder / f"run-{workers}")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training in this process."""
    folder = tmp_path_factory.mktemp("first")
    here(folder)
    return folder / "run-1"


def test_every_engine_gives_the_same_bytes_and_the_same_account(tmp_path: Path, first: Path) -> None:
    alone = train_federation(*task(tmp_path).make(), LocalEngine(), folder=first)
    assert here(tmp_path, workers=2).digest() == alone.digest()
    assert on_flower(tmp_path).digest() == alone.digest()
    folders = (first, tmp_path / "run", tmp_path / "run-2")
    accounts = [json.loads((folder / "privacy.json").read_text()) for folder in folders]
    assert accounts[0] == accounts[1] == accounts[2]
    releases, promise = accounts[0]["releases"], accounts[0]["promise"]
    assert [(one["what"], one.get("times", 1)) for one in releases] == [("round 1", 3), ("round 2", 3), ("summary", 1)]
    assert [one["sampling"] for one in releases] == [64 / 150, 64 / 150, 1.0]
    steps = [Release("", one["multiplier"], one["sampling"], one.get("times", 1)) for one in releases]
    assert 7.8 <= epsilon_of(steps, 1e-5) <= 8.0
    assert (promise["unit"], promise["epsilon"], promise["mechanism"]) == ("record", 8.0, "dp-sgd")
    assert alone.client(0).bundle.metadata["privacy"] == promise
    assert alone.total is not None
    assert alone.total.calibration is None
    with pytest.raises(StorageError, match="break its promise of privacy"):
        train_federation(*task(tmp_path, rounds=3).make(), LocalEngine(), folder=first, longer=True)


def test_secure_sums_of_noisy_updates_are_the_same_on_flower(tmp_path: Path, first: Path) -> None:
    masked, simulated = on_flower(tmp_path, secure=True), here(tmp_path, secure=True)
    assert masked.digest() == simulated.digest()
    plain = train_federation(*task(tmp_path).make(), LocalEngine(), folder=first)
    for name, array in simulated.shared.items():
        assert np.allclose(array, plain.shared[name], atol=1e-6)  # the noise of training is the clients' own


def test_a_client_sends_noisy_weights_and_neither_counts_nor_metrics(tmp_path: Path) -> None:
    recipe, data = task(tmp_path).make()
    update = perform(recipe, data, Broadcast(recipe.initial()), Job("train", 0, 1, {}))
    assert isinstance(update, Update)
    assert (update.samples, update.metrics) == (1, {})
    assert set(update.upload) == set(recipe.initial())
    assert all(name.startswith("personal_head.") for name in update.private)


def test_a_defence_looks_at_updates_that_are_private_already(tmp_path: Path, first: Path) -> None:
    mean = train_federation(*task(tmp_path).make(), LocalEngine(), folder=first).shared["head.weight"]
    median = here(tmp_path, defence="median", rounds=2).shared["head.weight"]
    assert 0 < np.abs(median - mean).max() < 1
