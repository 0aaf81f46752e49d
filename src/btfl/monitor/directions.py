"""In which directions samples may be off, and how far is usual along each; learnt from some, without labels.

A Mahalanobis distance takes every direction for a bell curve, and looks are none: some numbers have long tails, such
as the share of flat steps among clip art and photographs. And few samples need shrinkage, which makes little of
directions along which nothing ever moves. So a direction is measured by what one own sample in twenty exceeds along it.
Directions are the principal ones, and each number given those before it (the rows of the Cholesky factor's inverse):
the first see what moves together, the second single numbers. A sample's distance is the root mean square over them.
``benchmarks/choose_looks.py`` chose numbers, quantile, power and directions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
USUAL = 0.95
"""The share of own samples that are nearer than what counts as usual along a direction."""
POWER = 2
"""How much more the directions count along which a sample is far off."""
_LEAST_SHRINKAGE, _LEAST_SCALE, _LEAST_USUAL = 0.01, 0.05, 0.01


def usual_directions(known: Floats, share: float = USUAL) -> tuple[Floats, Floats]:
    """Return the centre of statistics (samples, numbers), and directions (numbers, 2 numbers) in units of the usual."""
    samples, numbers = known.shape
    centre, deviation = known.mean(axis=0), known.std(axis=0)
    scale = np.maximum(deviation, _LEAST_SCALE)  # what never changed may change a little
    standard = (known - centre) / scale
    shrinkage = max(_LEAST_SHRINKAGE, numbers / (samples + numbers))  # the fewer samples, the less correlations count
    correlation = (1.0 - shrinkage) * (standard.T @ standard) / samples + shrinkage * np.eye(numbers)
    sizes, principal = np.linalg.eigh(correlation)
    one_by_one = np.linalg.inv(np.linalg.cholesky(correlation)).T
    directions = np.concatenate([principal / np.sqrt(sizes), one_by_one], axis=1) / scale[:, None]
    along = np.abs((known - centre) @ directions)
    usual = np.maximum(np.quantile(along, share, axis=0), np.sqrt((along**2).mean(axis=0))).clip(_LEAST_USUAL)
    not_seen = np.sqrt((scale**2 - deviation**2) @ directions**2)  # of what never changed
    return centre, np.ascontiguousarray(directions / np.hypot(usual, 2.0 * not_seen))


def distance(statistics: Floats, centre: Floats, directions: Floats, power: float = POWER) -> Floats:
    """Return (samples,): how far each is off, mostly below 1 for samples like those that are known."""
    along = np.abs((statistics - centre) @ directions)
    return np.asarray((along**power).mean(axis=1) ** (1 / power))
