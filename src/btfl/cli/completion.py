"""What the shell offers for an option or argument: names that btfl knows, found without importing torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from btfl.imports import load_own

Complete = Callable[[typer.Context, list[str], str], list[str]]


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Return a function that offers the names that begin with what is typed."""

    def complete(context: typer.Context, words: list[str], incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _in(registry: str) -> Complete:
    """Complete from a registry, or a function that returns one, named as ``module:name`` and imported when asked."""

    def names() -> Iterable[str]:
        found: Callable[[], Iterable[str]] | Iterable[str] = load_own(registry)
        return found() if callable(found) else found

    return completing(names)


def _experiments() -> Iterable[str]:
    from btfl.experiments.files import experiment_names

    return [*experiment_names(), *sorted(map(str, Path().glob("*.toml")))]


def _reproductions() -> Iterable[str]:
    from btfl.experiments.reproduce import reproductions

    return [each.name for each in reproductions()]


def _zoo_entries() -> Iterable[str]:
    from btfl.zoo.start import zoo_entries

    return [entry.name for entry in zoo_entries()]


def _settings() -> Iterable[str]:
    from btfl.experiments.experiment import Experiment
    from btfl.recipes.settings import TrainingSettings

    of_training = (f"training.{each.name}=" for each in TrainingSettings.knobs())
    return [*(f"{each.name}=" for each in Experiment.knobs() if each.type is not dict), *of_training]


methods = _in("btfl.methods.registry:METHODS")
recipes = _in("btfl.recipes.registry:RECIPES")
models = _in("btfl.models.names:MODELS")
datasets = _in("btfl.data.catalogue:SOURCES")
fetched_datasets = _in("btfl.data.fetching.fetch:gettable")
presets = _in("btfl.experiments.files:experiment_names")
experiments = completing(_experiments)
reproductions = completing(_reproductions)
zoo_entries = completing(_zoo_entries)
settings = completing(_settings)
