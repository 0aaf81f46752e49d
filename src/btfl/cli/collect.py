"""An experiment from what was typed: its name or file, with single settings changed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from btfl.engines.faults import FaultSettings
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.files import ExperimentFile, experiment_names, read_experiment, read_preset
from btfl.zoo.start import find_start


def collect(typed: Mapping[str, Any]) -> Experiment:
    """Make an experiment from a command's options: a file, a preset or a trained federation, and changes.

    Beside a trained federation a file says what is to be different: other methods, for example.

    Parameters
    ----------
    typed : what the command was given, by the names of ``options.experiment_options``, and ``start`` (``--from``);
        None or nothing is what was not typed, and what is no part of an experiment is ignored
    """
    name, preset, start = (typed.get(each) for each in ("experiment", "preset", "start"))
    if preset is not None and (name is not None or start is not None):
        raise InputError("a preset is a whole experiment: it goes with neither a file nor --from")
    values: dict[str, Any] = {} if start is None else dict(find_start(start).experiment)
    if preset is not None:
        values = {"name": preset, **read_preset(preset)}
    elif name is not None:
        file = read_experiment(name)
        _say_what_is_left(file)
        values |= {**({"name": name} if name in experiment_names() else {}), **file.first()}
    for place, value in _changes(typed).items():
        table, *rest = place.split(".", 1)
        inside = values.get(table, {}) if rest else {}
        if not isinstance(inside, Mapping):
            raise InputError(f"{table} is a single setting: there is no {place}")
        values[table] = {**inside, rest[0]: value} if rest else value
    values.setdefault("name", values.get("dataset", "digits"))
    return make_experiment(values)


def collect_faults(typed: Mapping[str, Any]) -> FaultSettings:
    """Return how failing clients are treated, from a command's options."""
    return FaultSettings(**{each.name: typed[each.name] for each in FaultSettings.knobs() if each.name in typed})


def _changes(typed: Mapping[str, Any]) -> dict[str, Any]:
    changes = {each.name: typed.get(each.name) for each in Experiment.knobs()}
    changes["training.rounds"] = typed.get("rounds")
    changes = {place: value for place, value in changes.items() if value not in (None, (), [])}
    return {**changes, **typed_values(typed.get("changes") or ())}


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
