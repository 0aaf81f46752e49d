"""Training as MLflow has it: a run for each recipe, each round once, in a store of files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from btfl.engines import Event
from btfl.engines.mlflow_log import MlflowReport, need_mlflow
from btfl.errors import InputError

tracking = pytest.importorskip("mlflow.tracking", reason="MLflow's client is not installed: pip install 'btfl[mlflow]'")


def rounds(first: int, last: int) -> list[Event]:
    numbers = range(first, last + 1)
    return [Event("train", each, 3, 2, 2, {"loss": 1 / each, "accuracy": 0.5, "seconds": 0.1}) for each in numbers]


def test_each_round_is_logged_once_and_a_training_that_goes_on_has_one_run(tmp_path: Path) -> None:
    for first, last in ((1, 2), (2, 3)):  # the second is done again after a kill
        with MlflowReport(str(tmp_path / "store"), tmp_path / "run", "demo", "fedavg", {"rounds": 3}) as report:
            report(Event("train", first, 3, 1, 2, {}))  # a client has finished, the round has not
            for event in rounds(first, last):
                report(event)
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("demo").experiment_id])
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(each.step, each.value) for each in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert run.data.params == {"rounds": "3"}
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "fedavg"


def test_a_training_that_stops_with_an_error_is_said_to_have_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), MlflowReport(str(tmp_path), tmp_path / "run", "demo", "fedavg", {}):
        _ = 1 / 0
    client = tracking.MlflowClient(tracking_uri=tmp_path.as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("demo").experiment_id])
    assert run.info.status == "FAILED"


def test_a_place_that_mlflow_does_not_know_and_a_missing_package_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="MLflow cannot use 'carrier:pigeon'"):
        MlflowReport("carrier:pigeon", tmp_path, "demo", "fedavg", {})
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(InputError, match=r"pip install 'btfl\[mlflow\]'"):
        need_mlflow()
