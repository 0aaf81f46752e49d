"""Who calls other things by the names of the classes: a part of the defence ``screen``, for the first round.

A client whose labels are flipped trains as honestly as any other, and its updates lean as theirs do. But all clients
begin with the same features, and local training moves the head's row of a class towards the features of that class's
samples. So two honest clients move the row of a class that both have in the same direction, and not in that of another
class's row; a client with other labels moves it where the others move another one. From all pairs the main eigenvector
tells two camps apart, as for directions (``btfl.engines.screening``): whoever is in the smaller one, against the larger
one, and farther from it than an honest one of so many is, calls things by other names than most.

Clients that have few classes in common tell little about each other: where the camps are not clear, nobody is named.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from btfl.engines.screening import larger_camp
from btfl.runs.standing import deviation_beyond, farthest

Floats = NDArray[np.float64]

AGREED = 0.2
"""Of the largest eigenvalue that there can be: with less, clients do not agree on what the classes are."""
FEWEST = 4
MOST_ROWS = 4096
"""Rows of all clients' heads together: with more, they are not compared, which grows with their square."""


def few_enough(clients: int, classes: int) -> bool:
    """Return whether so many clients can be compared, and are enough to be."""
    return clients >= FEWEST and clients * classes <= MOST_ROWS


def misnamed(steps: Floats) -> list[int]:
    """Return the places of clients that call classes by other names than most others.

    Parameters
    ----------
    steps : (clients, K, d) how far each client has moved the rows of a head that was the same for all
    """
    count, classes, _ = steps.shape
    if not few_enough(count, classes):
        return []
    agreement = _agreement(steps)
    larger = larger_camp(agreement, AGREED)
    if larger is None:
        return []
    told = ((agreement != 0) & larger).sum(axis=1)
    means = (agreement * larger).sum(axis=1) / np.maximum(told, 1)
    middle = float(np.median(means[larger]))
    bound = min(0.0, middle - farthest(count) * deviation_beyond(means[larger], middle))
    found = np.flatnonzero(~larger & (means < bound))
    return [int(place) for place in found] if 2 * len(found) < count else []


def _agreement(steps: Floats) -> Floats:
    """Return for each pair by how much more alike their steps are for the same class than for different ones.

    Positive: both call the same thing by the same name. 0 where they have no class in common, or no other to compare
    with. A class is a client's own if training moved its row along the features, which are mostly positive.
    """
    count, classes, _ = steps.shape
    lengths = np.linalg.norm(steps, axis=2, keepdims=True)
    units = steps / np.maximum(lengths, np.finfo(np.float64).tiny)
    own = steps.sum(axis=2) > 0
    found = np.zeros((count, count))
    for one in range(count):
        cosines = np.einsum("kd,nld->nkl", units[one], units)
        same = np.einsum("nkk->nk", cosines).copy()
        others = np.where(own[:, None, :] & ~np.eye(classes, dtype=bool), cosines, -np.inf).max(axis=2)
        counted = own[one] & own & np.isfinite(others)
        gaps = np.where(counted, same - np.where(counted, others, 0.0), 0.0)
        found[one] = gaps.sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    np.fill_diagonal(found, 0.0)
    return (found + found.T) / 2
