"""One process, two workers and Flower's simulation: the same sha256 over all final weights, heads and likelihoods."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'btfl[flower]'")

from btfl import ClientBundle
from btfl.engines import FaultSettings, LocalEngine, train_federation
from btfl.errors import InputError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import read_preset
from btfl.flower.simulation import FlowerSimulation
from btfl.flower.task import FlowerTask
from btfl.runs.trained import TrainedFederation

EXPERIMENT = make_experiment({**read_preset("demo"), "clients": 4, "training": {"rounds": 2}})


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainedFederation, Path]:
    # In a process of its own, as a user has it: Ray leaves open files and processes behind, which pytest objects to.
    folder = tmp_path_factory.mktemp("simulation")
    options = ["--preset", "demo", "--clients", "4", "--rounds", "2", "--method", "btfl", "--workers", "2"]
    command = [sys.executable, "-c", "from btfl.cli import main; main()", "flower", "simulate", *options]
    environment = {**os.environ, "RAY_worker_niceness": "0"}  # Ray's 15 would have it wait for the other tests
    done = subprocess.run(
        [*command, "--out", str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "BTFL" in done.stdout
    return TrainedFederation.load(folder / "training" / "fedavg" / "final"), folder


def task() -> FlowerTask:
    return FlowerTask.of(EXPERIMENT, "fedavg", "run", FaultSettings())


def test_the_engines_agree_to_the_bit(simulated: tuple[TrainedFederation, Path]) -> None:
    one, two = (train_federation(*task().make(), LocalEngine(workers)).digest() for workers in (1, 2))
    assert one == two
    assert simulated[0].digest() == one


def test_every_client_has_its_bundle_and_the_server_no_private_state(simulated: tuple[TrainedFederation, Path]) -> None:
    federation, folder = simulated
    for client in range(4):
        bundle = ClientBundle.load(folder / "flower" / "fedavg" / "clients" / f"client-{client:06d}")
        assert bundle.metadata["client"] == client
        assert bundle.global_likelihood.clients == 4
        assert (bundle.personal_head.weight == federation.outcome(client).bundle.personal_head.weight).all()
    assert not list((folder / "training" / "fedavg" / "private").glob("*"))


def test_a_run_config_says_all_of_an_experiment() -> None:
    assert FlowerTask.from_run_config(task().run_config()) == task()
    assert all(isinstance(value, bool | int | float | str) for value in task().run_config().values())


def test_a_list_in_a_run_config_must_be_json() -> None:
    with pytest.raises(InputError, match=r"experiment\.methods must be a list"):
        FlowerTask.from_run_config({"experiment.methods": "[btfl"})


def test_a_simulation_of_something_else_is_refused(tmp_path: Path) -> None:
    other = make_experiment({**EXPERIMENT.model_dump(exclude_defaults=True), "seed": 1})
    with pytest.raises(InputError, match="not those of the simulation's experiment"):
        train_federation(*task().make(), FlowerSimulation(other, tmp_path))
