"""What the server does with uploads, one at a time: its memory grows with the model, not with the clients.

Everything is added in float64 and in the order of the clients, whoever finishes first, so that every engine gives the
same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.runs.standing import Standing

Mean = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Averaged:
    """What a round came to."""

    weights: Mean
    left_out: Mapping[int, str] = field(default_factory=dict)
    """Clients whose updates were not used, and why."""
    cut: Mapping[int, str] = field(default_factory=dict)
    """Clients whose updates were used, but shortened, and why."""
    standing: Standing = field(default_factory=Standing)
    restart: bool = False
    """Whether to go back to the first weights: liars have led training astray, and are known now."""
    clip: float | None = None
    """With privacy: the length to clip the next round's updates to."""


class RunningSum:
    """Adds up arrays of the same names and shapes, each with a weight; what is added has been checked before."""

    def __init__(self) -> None:
        self._sums: dict[str, NDArray[np.float64]] = {}
        self.weight = 0.0

    def add(self, arrays: Mapping[str, NDArray[Any]], weight: float = 1.0) -> None:
        """Add one client's arrays."""
        for name, array in arrays.items():
            term = np.multiply(array, weight, dtype=np.float64)
            if name in self._sums:
                self._sums[name] += term
            else:
                self._sums[name] = term
        self.weight += weight

    def mean(self) -> dict[str, NDArray[np.float32]]:
        """Return the weighted means, rounded to float32."""
        if not self.weight:
            raise InputError("nothing to average: no client took part")
        return {name: (value / self.weight).astype(np.float32) for name, value in self._sums.items()}
