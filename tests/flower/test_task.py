"""A task travels in a run config and comes back as it was, natural clients without a number too."""

from __future__ import annotations

from pathlib import Path

import pytest

from btfl.engines.faults import FaultSettings
from btfl.experiments.experiment import make_experiment
from btfl.flower.task import FlowerTask


@pytest.mark.parametrize("clients", [None, 7])
def test_natural_clients_survive_a_run_config(tmp_path: Path, clients: int | None) -> None:
    values = {"dataset": "arrays", "partition": "natural", "split": "ordered", "fewest": 30, "standardise": False}
    experiment = make_experiment(values if clients is None else {**values, "clients": clients})
    assert experiment.clients == clients
    config = FlowerTask.of(experiment, "fedavg", tmp_path, FaultSettings()).run_config()
    assert None not in config.values()
    again = FlowerTask.from_run_config(config)
    assert again.experiment == FlowerTask.of(experiment, "fedavg", tmp_path, FaultSettings()).experiment
