"""An experiment from what was typed: a file or a preset, with single settings changed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from btfl.errors import InputError
from btfl.experiments.experiment import Experiment, make_experiment, read_experiment, read_preset
from btfl.zoo.start import find_start

_SETTINGS = {
    **{name: name for name in ("dataset", "root", "shift", "model", "clients", "alpha", "split", "seed")},
    "rounds": "training.rounds",
    "method": "methods",
}
"""Options that say a setting of an experiment, and what it is called there."""


def collect(typed: Mapping[str, Any]) -> Experiment:
    """Put an experiment together from a command's options: a file, a preset or a trained federation, and changes.

    Beside a trained federation a file says what is to be different: other methods, for instance.

    ``typed`` is what the command was given (``typer.Context.params``), by the names of ``cli/options.py``; None is what
    was not typed, and what is no part of an experiment is left alone.
    """
    path, preset, start = (typed.get(name) for name in ("experiment", "preset", "start"))
    if preset is not None and (path is not None or start is not None):
        raise InputError("a preset is a whole experiment: it goes with neither a file nor --from")
    values = _base(path, preset, start)
    changes = {place: typed[name] for name, place in _SETTINGS.items() if typed.get(name) not in (None, (), [])}
    for item in typed.get("option") or []:
        name, equals, text = item.partition("=")
        if not equals:
            raise InputError(f"--set takes name=value, not '{item}'")
        changes[name.strip()] = _value(text.strip())
    for name, value in changes.items():
        place, *rest = name.split(".", 1)
        if rest:
            values[place] = {**values.get(place, {}), rest[0]: value}
        else:
            values[place] = value
    values.setdefault("name", preset or values.get("dataset", "digits"))
    return make_experiment(values)


def _base(path: str | Path | None, preset: str | None, start: str | None) -> dict[str, Any]:
    if preset is not None:
        return read_preset(preset)
    trained = {} if start is None else dict(find_start(start).experiment)
    return trained if path is None else {**trained, **read_experiment(Path(path))}


def _value(text: str) -> Any:
    """Read a value as TOML would, or else as the text it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
