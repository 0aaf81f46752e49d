"""Numbers that may be several, with commas between them: an option of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class SeveralInts(click.IntRange):
    """A whole number, or a tuple of several: ``0,1,2``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a number for one value, a tuple for several."""
        return _several(self, super().convert, value, param, ctx)


class SeveralFloats(click.FloatRange):
    """A number, or a tuple of several: ``0.1,0.5``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a number for one value, a tuple for several."""
        return _several(self, super().convert, value, param, ctx)


def _several(
    kind: click.ParamType,
    convert: Callable[..., Any],
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    if not isinstance(value, str) or "," not in value:
        return convert(value, param, ctx)
    found = tuple(convert(part.strip(), param, ctx) for part in value.split(","))
    for number in found:
        if found.count(number) > 1:
            kind.fail(f"{value!r} has {number:g} twice; name each value once.", param, ctx)
    return found
