"""The settings of an experiment from where a person wrote them: its name or file, and single changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from btfl.errors import InputError
from btfl.experiments.files import experiment_names, read_experiment
from btfl.methods.registry import ALL, every_method


def gather(
    experiment: str | Path | Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    under: Mapping[str, Any] | None = None,
    recipes: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the settings of an experiment, not yet checked; a number may be a list of several (``make_sweep``).

    Parameters
    ----------
    experiment : the name of one that comes with btfl, a TOML file, or settings
    changes : settings by name, or by place: ``training.rounds``
    under : settings that the experiment changes, those of a trained federation for instance
    recipes : what is trained, if nothing else can be; ``all`` then names the methods that need no other

    >>> gather("demo", {"seed": [0, 1], "training.rounds": 3})["training"]
    {'rounds': 3}
    """
    values: dict[str, Any] = dict(under or {})
    if isinstance(experiment, Mapping):
        values |= experiment
    elif experiment is not None:
        name = str(experiment)
        values |= {**({"name": name} if name in experiment_names() else {}), **read_experiment(name).first()}
    for place, value in (changes or {}).items():
        table, *rest = place.split(".", 1)
        inside = values.get(table, {}) if rest else {}
        if not isinstance(inside, Mapping):
            raise InputError(f"{table} is a single setting: there is no {place}")
        values[table] = {**inside, rest[0]: value} if rest else value
    values.setdefault("name", values.get("dataset", "digits"))
    named = values.get("methods")
    if named == ALL or (isinstance(named, list | tuple) and ALL in named):
        values["methods"] = _expanded(values["methods"], recipes)
    return values


def _expanded(names: Collection[str], recipes: Collection[str] | None) -> tuple[str, ...]:
    """Put every method in the place of ``all``."""
    if isinstance(names, str):
        names = (names,)
    known = every_method(None if recipes is None else _served_by(recipes))
    if not known:
        raise InputError(f"no method can do with what is trained here: {', '.join(recipes or ()) or 'nothing'}")
    return tuple(dict.fromkeys(each for name in names for each in (known if name == ALL else (name,))))


def _served_by(recipes: Collection[str]) -> set[str]:
    """Return the recipes whose federations can be made of what these have trained."""
    from btfl.recipes.registry import RECIPES, recipe_class

    return {name for name in RECIPES if name in recipes or recipe_class(name).rounds_of in recipes}
