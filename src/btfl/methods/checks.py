"""Checks of a method's settings: one sentence that says what would be right."""

from __future__ import annotations

import math

from btfl.errors import InputError


def check_count(method: str, name: str, value: object, least: int = 1) -> None:
    """Refuse a setting that is not a whole number of at least so many."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{method}: {name} must be a whole number of at least {least}, not {value!r}")


def check_positive(method: str, name: str, value: object) -> None:
    """Refuse a setting that is not a number above zero."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise InputError(f"{method}: {name} must be a number above 0, not {value!r}")


def check_share(method: str, name: str, value: object) -> None:
    """Refuse a setting that is not a share."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InputError(f"{method}: {name} must be a share from 0 to 1, not {value!r}")
