"""An experiment from what was typed: a file or a preset, with single settings changed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from btfl.bench.experiment import Experiment, make_experiment, read_experiment, read_preset
from btfl.bench.start import find_start
from btfl.errors import InputError

_PLACES = {"rounds": "training.rounds"}  # options whose setting is called otherwise


def collect(
    path: Path | None, preset: str | None, settings: list[str] | None, start: str | None = None, **options: Any
) -> Experiment:
    """Put an experiment together from a file, a preset or a trained federation, and what was typed beside it.

    None is what was not typed.
    """
    if sum(source is not None for source in (path, preset, start)) > 1:
        raise InputError("an experiment comes from a file, a preset or --from: name one of them")
    values = _base(path, preset, start)
    changes = {_PLACES.get(name, name): value for name, value in options.items() if value is not None}
    for item in settings or []:
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


def _base(path: Path | None, preset: str | None, start: str | None) -> dict[str, Any]:
    if path is not None:
        return read_experiment(path)
    if start is not None:
        return dict(find_start(start).experiment)
    return read_preset(preset) if preset else {}


def _value(text: str) -> Any:
    """Read a value as TOML would, or else as the text it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
