"""What the shell offers for an option or argument: names that btfl knows, found without importing torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

Complete = Callable[[typer.Context, list[str], str], list[str]]


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Return what typer asks for (``autocompletion=``): the names that begin with what is typed."""

    def complete(context: typer.Context, words: list[str], incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def methods() -> Iterable[str]:
    """Name the methods."""
    from btfl.methods.registry import METHODS

    return METHODS


def recipes() -> Iterable[str]:
    """Name the recipes."""
    from btfl.recipes.registry import RECIPES

    return RECIPES


def models() -> Iterable[str]:
    """Name the models."""
    from btfl.models.names import MODELS

    return MODELS


def datasets() -> Iterable[str]:
    """Name the datasets."""
    from btfl.data.catalogue import SOURCES

    return SOURCES


def fetched_datasets() -> Iterable[str]:
    """Name the datasets that `btfl data get` knows."""
    from btfl.data.fetching.fetch import gettable

    return gettable()


def presets() -> Iterable[str]:
    """Name the experiments that come with btfl."""
    from btfl.experiments.files import experiment_names

    return experiment_names()


def experiments() -> Iterable[str]:
    """Name the experiments that come with btfl, and TOML files in this folder."""
    return [*presets(), *sorted(map(str, Path().glob("*.toml")))]


def reproductions() -> Iterable[str]:
    """Name the tables and figures of the paper."""
    from btfl.experiments.reproduce import reproductions

    return [each.name for each in reproductions()]


def zoo_entries() -> Iterable[str]:
    """Name the entries of the zoo, as ``--from`` takes them."""
    from btfl.zoo.start import zoo_entries

    return [entry.name for entry in zoo_entries()]


def settings() -> Iterable[str]:
    """Name the settings that ``--set`` takes, those of training included."""
    from btfl.experiments.experiment import Experiment
    from btfl.recipes.settings import TrainingSettings

    of_training = (f"training.{each.name}=" for each in TrainingSettings.knobs())
    return [*(f"{each.name}=" for each in Experiment.knobs() if each.type is not dict), *of_training]
