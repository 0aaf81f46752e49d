"""Training for MLflow: a run for each recipe, with the settings as parameters and each round's metrics.

Needs ``pip install 'btfl[mlflow]'``, which is MLflow's client alone. Nothing is sent but to the place that is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from btfl.errors import InputError

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

    from btfl.engines.federation import Event

_FOLDER = "btfl.folder"  # the tag by which a run that goes on is found again
_LONGEST = 500  # characters of a parameter's value that every store takes


class MlflowReport:
    """A report that logs the metrics of each round; a training that goes on adds to the run it has begun.

    Parameters
    ----------
    place : a folder, or the address of a tracking server, as MLflow takes it: ``http://...``, ``sqlite:///...``
    folder : where the training is kept, by which MLflow's run is found again
    experiment, run : what MLflow calls them
    settings : its parameters
    """

    def __init__(self, place: str, folder: Path, experiment: str, run: str, settings: Mapping[str, Any]) -> None:
        self._client = _client(place)
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found is not None else self._client.create_experiment(experiment)
        mine = str(folder.resolve())
        self._run = self._begun(number, mine) or self._begin(number, run, mine, settings)
        self._last = max((each.step for each in self._history()), default=0)

    def __enter__(self) -> MlflowReport:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._client.set_terminated(self._run.info.run_id, "FINISHED" if kind is None else "FAILED")

    def __call__(self, event: Event) -> None:
        """Log a round that is done; one that is done again has the same numbers, and is logged already."""
        if not event.metrics or event.round <= self._last:
            return
        self._last = event.round
        for name, value in event.metrics.items():
            self._client.log_metric(self._run.info.run_id, f"train/{name}", float(value), step=event.round)

    def _begun(self, experiment: str, folder: str) -> Run | None:
        found = [run for run in self._client.search_runs([experiment]) if run.data.tags.get(_FOLDER) == folder]
        return found[0] if found else None

    def _begin(self, experiment: str, name: str, folder: str, settings: Mapping[str, Any]) -> Run:
        run = self._client.create_run(experiment, tags={_FOLDER: folder}, run_name=name)
        for key, value in settings.items():
            self._client.log_param(run.info.run_id, key, str(value)[:_LONGEST])
        return run

    def _history(self) -> list[Any]:
        return list(self._client.get_metric_history(self._run.info.run_id, "train/seconds"))


def need_mlflow() -> None:
    """Say what to install, if MLflow is not there."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before it is imported: btfl reports nothing to anybody
    try:
        import mlflow.tracking  # noqa: F401
    except ImportError:
        raise InputError("logging to MLflow needs its client: pip install 'btfl[mlflow]'") from None


def _client(place: str) -> MlflowClient:
    need_mlflow()
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    uri = place if ":" in place else Path(place).resolve().as_uri()
    if uri.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 asks for it; a database needs its server
    try:
        return MlflowClient(tracking_uri=uri)
    except MlflowException as error:
        raise InputError(f"MLflow cannot use '{place}': {error}") from None
