"""Which recipe on which data: an experiment, carried by Flower's run config.

A run config is flat and holds numbers, truth values and text. So each setting of an experiment is a key of its own
(``experiment.clients``, ``experiment.training.rounds``), and lists are written as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from btfl.data.federated import FederatedData
from btfl.engines.faults import FaultSettings
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.load import load_for_training
from btfl.recipes.base import Recipe
from btfl.recipes.registry import make_recipe

Value = bool | int | float | str
_PREFIX = "experiment."


@dataclass(frozen=True)
class FlowerTask:
    """What a Flower run trains, and where it leaves things."""

    experiment: str
    """The experiment as JSON text: plain, hashable, and quick to send to another process."""
    recipe: str = "fedavg"
    folder: str = "btfl-run"
    """Where the server keeps the run; clients without a folder of their own keep theirs under it."""
    faults: FaultSettings = field(default_factory=FaultSettings)

    @classmethod
    def of(cls, experiment: Experiment, recipe: str, folder: str | Path, faults: FaultSettings) -> FlowerTask:
        """Make the task of training one recipe of an experiment."""
        return cls(experiment.model_dump_json(exclude_defaults=True), recipe, str(folder), faults)

    @classmethod
    def from_run_config(cls, config: Mapping[str, Value]) -> FlowerTask:
        """Read a run config."""
        values: dict[str, Any] = {}
        for key, value in config.items():
            if not key.startswith(_PREFIX):
                continue
            *tables, name = key.removeprefix(_PREFIX).split(".")
            place = values
            for table in tables:
                place = place.setdefault(table, {})
            place[name] = _from_flat(key, value)
        limits: dict[str, Any] = {
            "min_share": float(config.get("min-share", FaultSettings.min_share)),
            "time_limit": float(config.get("time-limit", FaultSettings.time_limit)),
            "smallest_cohort": int(config.get("smallest-cohort", FaultSettings.smallest_cohort)),
            "most_samples": int(config.get("most-samples", FaultSettings.most_samples)),
            "bind_nodes": bool(config.get("bind-nodes", FaultSettings.bind_nodes)),
        }
        recipe, folder = str(config.get("recipe", cls.recipe)), str(config.get("folder", cls.folder))
        return cls.of(make_experiment(values), recipe, folder, FaultSettings(**limits))

    def run_config(self) -> dict[str, Value]:
        """Return the run config that says the same."""
        return {
            "recipe": self.recipe,
            "folder": self.folder,
            "min-share": self.faults.min_share,
            "time-limit": self.faults.time_limit,
            "smallest-cohort": self.faults.smallest_cohort,
            "most-samples": self.faults.most_samples,
            "bind-nodes": self.faults.bind_nodes,
            **_flat(json.loads(self.experiment), _PREFIX),
        }

    def make(self, root: str | None = None) -> tuple[Recipe, FederatedData]:
        """Load the data, from ``root`` if given, and make the recipe; what a process has made it keeps."""
        return _make(self.experiment, self.recipe, root)


TaskReader = Callable[[Mapping[str, Value]], FlowerTask]
"""Run config -> task."""


@lru_cache(maxsize=2)
def _make(text: str, recipe: str, root: str | None) -> tuple[Recipe, FederatedData]:
    experiment = make_experiment(json.loads(text))
    data = load_for_training(experiment, None if root is None else Path(root))
    return make_recipe(recipe, experiment.training_settings(), data.sample_shape, len(data.source.classes)), data


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, Value]:
    flat: dict[str, Value] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        elif value is not None:  # which a run config cannot hold; natural clients have no number
            flat[f"{prefix}{name}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def _from_flat(key: str, value: Value) -> Any:
    if not (isinstance(value, str) and value.startswith("[")):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise InputError(f"{key} must be a list as JSON text, not {value!r}: {error}") from None
