"""Several experiments from one: a number that is a list of numbers is run with each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from btfl.errors import InputError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.knobs import Knob
from btfl.recipes.settings import TrainingSettings

_TRAINING = "training"
NEEDS_NO_TRAINING = ("draw", "severity", "longest_stream", "test_batch")
"""What may vary while the trained weights stay as they are."""


@dataclass(frozen=True)
class Sweep:
    """The experiments of a sweep, or one alone.

    Parameters
    ----------
    experiments : one for each combination of values; seeds are next to each other
    names : of their folders, such as ``alpha-0.1-seed-2``; empty for an experiment alone
    axes : the settings that vary, by place: ``training.rounds``
    """

    experiments: tuple[Experiment, ...]
    names: tuple[str, ...]
    axes: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> Sweep:
        """Return an experiment alone."""
        return cls((experiment,), ("",), ())

    @property
    def alone(self) -> bool:
        """Whether it is one experiment, and no sweep."""
        return not self.axes

    def folders(self, out: Path) -> list[Path]:
        """Return the folder of each run: ``out`` itself for an experiment alone, else folders inside it."""
        return [out / name if name else out for name in self.names]


def make_sweep(values: Mapping[str, Any]) -> Sweep:
    """Make an experiment for each combination of the numbers that are lists; all are checked before any is run.

    >>> make_sweep({"seed": [0, 1], "alpha": [0.1, 1.0]}).names
    ('alpha-0.1-seed-0', 'alpha-0.1-seed-1', 'alpha-1-seed-0', 'alpha-1-seed-1')
    """
    training = values.get(_TRAINING)
    inside = training if isinstance(training, Mapping) else {}
    axes = {
        **_axes(values, Experiment.knobs()),
        **_axes(inside, TrainingSettings.knobs(), f"{_TRAINING}."),
    }
    axes = dict(sorted(axes.items(), key=lambda axis: axis[0] == "seed"))  # the seed last
    experiments, names = [], []
    for numbers in product(*axes.values()):
        point = dict(zip(axes, numbers, strict=True))
        made = make_experiment(_at(values, inside, point))
        experiments.append(made)
        names.append("-".join(_named(place, _read(made, place)) for place in axes if len(axes[place]) > 1))
    varying = tuple(place for place, several in axes.items() if len(several) > 1)
    return Sweep(tuple(experiments), tuple(names), varying)


def _axes(values: Mapping[str, Any], knobs: Sequence[Knob], before: str = "") -> dict[str, tuple[Any, ...]]:
    """Return the numbers that are lists, by place."""
    found = {}
    for each in knobs:
        several = values.get(each.name)
        if each.type in (int, float) and isinstance(several, Sequence) and not isinstance(several, str):
            place = f"{before}{each.name}"
            if not several:
                raise InputError(f"{place}: name at least one value")
            for value in several:
                each.check(value, _TRAINING if before else "")
            if len(set(several)) < len(several):
                raise InputError(f"{place}: {', '.join(map(str, several))} has a value twice; name each once")
            found[place] = tuple(several)
    return found


def _at(values: Mapping[str, Any], inside: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    outer = {place: value for place, value in point.items() if "." not in place}
    inner = {place.removeprefix(f"{_TRAINING}."): value for place, value in point.items() if "." in place}
    return {**values, **outer, **({_TRAINING: {**inside, **inner}} if inner else {})}


def _read(experiment: Experiment, place: str) -> Any:
    table, _, name = place.partition(".")
    return experiment.training[name] if name else getattr(experiment, table)


def _named(place: str, value: Any) -> str:
    short = f"{value:g}" if isinstance(value, int | float) and float(f"{value:g}") == value else str(value)
    return f"{place.rpartition('.')[2].replace('_', '-')}-{short}"
