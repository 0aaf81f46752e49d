"""The weight of the global head, e = E[m_hat], on a fixed grid: for the a and b that a memory can hold.

``core/expectation.py`` takes any a and b. A memory's are at least 1 and add up to lambda at most, so that one grid
serves for all: a trapezoid sum over x with logit(m) = t = 6 sinh(x/6), which needs half as many points in the tails. In
t the Beta density is exp(a log m + b log(1-m)) but for a constant, and m_hat = 1 / (1 + tau exp(-t)). Both are
analytic, so that the error falls exponentially with the step: below 1e-12, and below 1e-13 for the paper's lambda.
The same grid is in the ONNX graph; one in single precision has half as many points, and an error of about 1e-7.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.expectation import weight_and_complement, weight_of_one

Floats = NDArray[np.float64]
LONGEST_MEMORY = 100.0
"""The lambda up to which e is taken from a grid; beyond it a grid would cost more than what serves for any a and b."""
_REACH, _SHORT_REACH = 32.0, 20.0  # of the grid in t: beyond it a Beta(1, b) has b exp(-32) of its mass
_STRETCH = 6.0  # t = 6 sinh(x/6): beyond t = 6 the points lie further and further apart
_COARSEST = 0.375
_WIDER = 1.6  # the steps where digits of single precision are enough
_ROWS_AT_ONCE = 256  # their work arrays stay in the processor's caches


class Grid:
    """The points of the sum, (points,) each; fewer if they are to be added up in ``single`` precision."""

    def __init__(self, prune_above: float, single: bool = False) -> None:
        # logit(m) has a variance of about 1/a + 1/b, at least 4/lambda: a longer memory needs a finer grid
        step = min(_COARSEST, 1.25 / math.sqrt(prune_above)) * (_WIDER if single else 1.0)
        reach = _SHORT_REACH if single else _REACH
        half = math.ceil(_STRETCH * math.asinh(reach / _STRETCH) / step)
        x = np.arange(-half, half + 1) * step / _STRETCH
        self.t = t = _STRETCH * np.sinh(x)
        self.log_widths = np.log(np.cosh(x))
        self.log_m, self.log_rest = -np.logaddexp(0.0, -t), -np.logaddexp(0.0, t)
        self.odds_against = np.exp(-t)
        self.ones = np.ones(len(t))

    def density(self, a: Any, b: Any) -> Any:
        """Return the Beta density at each point, but for a constant: (points,), or (rows, points) of columns."""
        log_density = a * self.log_m
        log_density += b * self.log_rest
        log_density += self.log_widths
        return np.exp(log_density, out=log_density)

    def external(self, density: Any, tau: Any) -> Any:
        """Return m_hat times the density at each point."""
        parts = self.odds_against * tau
        parts += 1.0
        return np.divide(density, parts, out=parts)


@lru_cache(maxsize=8)
def grid_for(prune_above: float) -> Grid:
    """Return the grid for a lambda; the clients of a federation share it."""
    return Grid(prune_above)


class ExpectedWeight:
    """e of a sample or of a batch, the same to the bit.

    The density of a sample alone is kept: most samples are no event, and leave the memory as it was.
    """

    def __init__(self, prune_above: float) -> None:
        self._grid = grid_for(prune_above) if prune_above <= LONGEST_MEMORY else None
        self._known: tuple[float, float, Floats, float] = (0.0, 0.0, np.empty(0), 0.0)

    def __call__(self, a: Any, b: Any, log_tau: Any) -> Any:
        """Return e for numbers, or for (samples,) arrays."""
        if isinstance(log_tau, np.ndarray):
            return self._of_batch(a, b, log_tau)
        return weight_of_one(a, b, log_tau) if self._grid is None else self._of_one(self._grid, a, b, log_tau)

    def _of_one(self, grid: Grid, a: float, b: float, log_tau: float) -> float:
        known_a, known_b, density, total = self._known
        if a != known_a or b != known_b:
            density = grid.density(a, b)
            total = float(density.dot(grid.ones))
            self._known = a, b, density, total
        return float(grid.external(density, np.exp(log_tau)).dot(grid.ones)) / total

    def _of_batch(self, a: Floats, b: Floats, log_tau: Floats) -> Floats:
        grid = self._grid
        if grid is None:
            return weight_and_complement(a, b, log_tau)[0]
        e, tau = np.empty(len(a)), np.exp(log_tau)
        for begin in range(0, len(a), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            density = grid.density(a[rows, None], b[rows, None])
            external = grid.external(density, tau[rows, None])
            np.divide(np.vecdot(external, grid.ones), np.vecdot(density, grid.ones), out=e[rows])
        return e
