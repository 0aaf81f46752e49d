"""Averages that withstand some liars: from what clients sent in a round to what the server goes on with.

Two families. Some look at one coordinate of all clients at a time (``COORDINATEWISE``). The others give each client a
weight, and need to know no more than how the updates lie to each other: the products of all pairs (``WEIGHTINGS``).
``btfl.engines.screening`` has ``screen``, which changes nothing as long as nobody is far from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = 32  # of the iterations for a centre
_CLOSE = 1e-9  # of the median length: no distance counts for less


def coordinate_median(block: Floats, liars: float) -> Floats:
    """Return the median of each column (Yin et al., 2018)."""
    return np.asarray(np.median(block, axis=0))


def trimmed_mean(block: Floats, liars: float) -> Floats:
    """Return the mean of each column without its largest and smallest values, a share ``liars`` each."""
    count = len(block)
    cut = min(int(np.ceil(liars * count - 1e-9)), (count - 1) // 2)
    return np.asarray(np.sort(block, axis=0)[cut : count - cut].mean(axis=0))


def clipped(products: Floats, samples: Floats, liars: float) -> Floats:
    """Return weights with which no update counts as longer than the median one."""
    lengths = np.sqrt(np.diagonal(products))
    bound = float(np.median(lengths))
    share = samples / samples.sum()
    return np.asarray(share * np.minimum(1.0, bound / np.maximum(lengths, _CLOSE * bound + 1e-300)))


def multi_krum(products: Floats, samples: Floats, liars: float) -> Floats:
    """Return equal weights for the n - f updates that are nearest to their neighbours (Blanchard et al., 2017)."""
    count, false = len(products), _false(len(products), liars)
    distances = _squares(products)
    near = max(count - false - 2, 1)
    scores = np.sort(distances + np.diag(np.full(count, np.inf)), axis=1)[:, :near].sum(axis=1)
    return _equal(scores, count - false)


def geometric_median(products: Floats, samples: Floats, liars: float) -> Floats:
    """Return the weights of the point with the least sum of distances (Pillutla et al., 2022): Weiszfeld's steps."""
    share = samples / samples.sum()
    weights = share
    least = _CLOSE * float(np.median(np.sqrt(np.diagonal(products)))) + 1e-300
    for _ in range(_STEPS):
        weights = share / np.maximum(_from_centre(products, weights), least)
        weights = weights / weights.sum()
    return np.asarray(weights)


def centred_clipping(products: Floats, samples: Floats, liars: float) -> Floats:
    """Return the weights of a mean whose terms are clipped around it, at the median distance (Karimireddy, 2021)."""
    weights = np.full(len(products), 1.0 / len(products))
    for _ in range(_STEPS):
        distances = _from_centre(products, weights)
        factors = np.minimum(1.0, np.median(distances) / np.maximum(distances, 1e-300)) / len(products)
        weights = weights * (1.0 - factors.sum()) + factors
    return weights


def divide_and_conquer(products: Floats, samples: Floats, liars: float) -> Floats:
    """Return equal weights for all but the f updates that are farthest along the main direction in which they differ.

    Shejwalkar and Houmansadr (2021), with all coordinates at once, and f instead of 1.5 f left out.
    """
    count = len(products)
    middle = np.eye(count) - 1.0 / count
    _, vectors = np.linalg.eigh(middle @ products @ middle)
    return _equal(vectors[:, -1] ** 2, count - _false(count, liars))


def _false(count: int, liars: float) -> int:
    """Return how many of so many may be liars: never half of them."""
    return min(int(np.ceil(liars * count - 1e-9)), (count - 1) // 2)


def _squares(products: Floats) -> Floats:
    own = np.diagonal(products)
    return np.asarray(np.maximum(own[:, None] + own - 2 * products, 0.0))


def _from_centre(products: Floats, weights: Floats) -> Floats:
    """Return how far each is from the sum with these weights."""
    towards = products @ weights
    return np.sqrt(np.maximum(np.diagonal(products) - 2 * towards + weights @ towards, 0.0))


def _equal(scores: Floats, kept: int) -> Floats:
    weights = np.zeros(len(scores))
    weights[np.argsort(scores, kind="stable")[:kept]] = 1.0 / kept
    return weights


Coordinatewise = Callable[[Floats, float], Floats]
Weighting = Callable[[Floats, Floats, float], Floats]
COORDINATEWISE: Mapping[str, Coordinatewise] = {"median": coordinate_median, "trimmed-mean": trimmed_mean}
"""Name -> function of (clients, columns) updates and the share of liars to withstand."""
WEIGHTINGS: Mapping[str, Weighting] = {
    "clip": clipped,
    "multi-krum": multi_krum,
    "geometric-median": geometric_median,
    "centred-clipping": centred_clipping,
    "dnc": divide_and_conquer,
}
"""Name -> function of the products of all updates, the clients' samples and the share of liars to withstand."""
