"""An experiment from what was typed: its name or file, with single settings changed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from btfl.cli.options import OF_TRAINING
from btfl.engines.faults import FaultSettings
from btfl.errors import InputError, UnknownNameError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.files import ExperimentFile, experiment_names, read_experiment
from btfl.experiments.gather import gather
from btfl.experiments.sweep import Sweep, make_sweep
from btfl.zoo.start import find_start


def collect(typed: Mapping[str, Any]) -> Experiment:
    """Make an experiment from a command's options: a file, a preset or a trained federation, and changes.

    Beside a trained federation a file says what is to be different: other methods, for example.

    Parameters
    ----------
    typed : what the command was given, by the names of ``options.experiment_options``, and ``start`` (``--from``);
        None or nothing is what was not typed, and what is no part of an experiment is ignored
    """
    return make_experiment(_settings(typed))


def collect_sweep(typed: Mapping[str, Any]) -> Sweep:
    """Make an experiment, or several where numbers are lists, in the same way."""
    return make_sweep(_settings(typed))


def _settings(typed: Mapping[str, Any]) -> dict[str, Any]:
    name, preset, start = (typed.get(each) for each in ("experiment", "preset", "start"))
    if preset is not None and (name is not None or start is not None):
        raise InputError("a preset is a whole experiment: it goes with neither a file nor --from")
    if preset is not None and preset not in experiment_names():
        raise UnknownNameError("preset", preset, experiment_names())
    found = None if start is None else find_start(start)
    if name is not None:
        _say_what_is_left(read_experiment(name))
    under, recipes = (None, None) if found is None else (found.experiment, found.recipes)
    return gather(preset or name, _changes(typed), under, recipes)


def collect_faults(typed: Mapping[str, Any]) -> FaultSettings:
    """Return how failing clients are treated, from a command's options."""
    return FaultSettings(**{each.name: typed[each.name] for each in FaultSettings.knobs() if each.name in typed})


def _changes(typed: Mapping[str, Any]) -> dict[str, Any]:
    changes = {each.name: typed.get(each.name) for each in Experiment.knobs()}
    changes |= {f"training.{name}": typed.get(name) for name in OF_TRAINING}
    changes = {place: value for place, value in changes.items() if value not in (None, (), [])}
    named = typed_values(typed.get("changes") or ())
    _refuse_options_of_datasets(name for name in named if name.partition(".")[0] not in Experiment.model_fields)
    return {**changes, **named}


def _refuse_options_of_datasets(unknown: Iterable[str]) -> None:
    """Say where an option of a dataset belongs: ``btfl data check`` takes it by its name alone."""
    from btfl.data.catalogue import SOURCES

    for name in unknown:
        if any(name in entry.options() for entry in SOURCES.values()):
            raise InputError(f"{name} is an option of a dataset: write --set dataset_options.{name}=...")


def typed_values(items: Iterable[str]) -> dict[str, Any]:
    """Return what ``--set`` was given, name=value each, by name."""
    values = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise InputError(f"--set takes name=value, not '{item}'")
        values[name.strip()] = _value(text.strip())
    return values


def _say_what_is_left(file: ExperimentFile) -> None:
    total = len(file.runs) * max(len(file.seeds), 1)
    if total > 1:
        typer.echo(f"note: the first of {total} runs of {file.name}; `btfl reproduce {file.name}` does all", err=True)


def _value(text: str) -> Any:
    """Read a value as TOML would, or else as the text it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # of tomllib, and of int() for a number of 5,000 digits
        return text
