"""Many variants of one test: some of them always, the others with ``-m slow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, variants: Iterable[Any]) -> list[Any]:
    """Return variants for ``parametrize`` of which every ``count``-th is run always and the others are slow."""
    return [
        one if place % count == 0 else pytest.param(one, marks=pytest.mark.slow) for place, one in enumerate(variants)
    ]
