"""The defence ``screen``: whoever is far from all others is left out of a round; as long as nobody is, nothing changes.

Updates (weights less those that were sent) are compared with each other, never with a number of their own:

- **size**: an update longer than ``SIZE`` times the median one;
- **copies**: updates nearer to each other than ``COPY`` times the median distance count once. Colluders that agree on
  one vector are recognised by it;
- **turned**: training makes a model surer of itself, so that a client's update has a positive product with the weights
  it began with, whatever its classes are; one that is turned round has a negative one. The cosine varies from round to
  round, so its mean over the rounds so far counts (``btfl.runs.standing``): below minus half the median client's.

Clients of very different data pull in different directions, and from some round on two honest updates may well be
opposed: tests that compare directions alone (cosines of pairs, distances to neighbours) leave honest clients out there.
In the first round they may agree: all are as far from any solution. So once, in that round and if they do, the main
eigenvector of all pairs' cosines tells two camps apart, and whoever is in the smaller one is left out until its mean
cosine speaks for it.

Where many are found turned round, they have led training astray before they were: it begins again from the first
weights, once, in the rounds that are left.

Never half of the clients or more are left out, and with fewer than ``FEWEST`` in a round nobody is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIZE, COPY = 30.0, 0.1
"""Honest updates were seen to be up to 14 times as long as the median one, and no nearer than 0.3 of the median
distance (docs/privacy.md)."""
AGAINST = 0.3
"""Of the median leaning: an update is against the majority if it leans so much the other way."""
AGREED = 0.25
"""Of the largest eigenvalue that there can be: with less, clients agree on nothing that one could be against."""
FEWEST = 4
GROUP = 512
"""With more clients in a round, they are compared in random groups of at most so many."""


def screen(products: Floats, turned: Sequence[int] = ()) -> dict[int, str]:
    """Return the places of updates to leave out, and why.

    Parameters
    ----------
    products : (clients, clients) products of all updates with each other
    turned : places of those that point away from what the others agree on (``Standing.turned``)
    """
    count = len(products)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    middle = float(np.median(lengths)) if count else 0.0
    if count < FEWEST or middle <= 0:
        return {}
    found = {
        int(place): f"its update is {lengths[place] / middle:.3g} times as long as the median one"
        for place in np.flatnonzero(lengths > SIZE * middle)
    }
    found |= {place: "its updates point away from where training goes" for place in turned if place not in found}
    rest = [place for place in range(count) if place not in found and lengths[place] > 0]
    found |= {rest[place]: "its update is a copy of another one" for place in _copies(products[np.ix_(rest, rest)])}
    return found if 2 * len(found) < count else {}


def smaller_camp(products: Floats) -> list[int]:
    """Return the places of updates that point against the majority, from the products of all pairs."""
    count = len(products)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    if count < FEWEST or not lengths.all():
        return []
    cosines = products / lengths / lengths[:, None]
    np.fill_diagonal(cosines, 0.0)
    values, vectors = np.linalg.eigh(cosines)
    leaning = vectors[:, -1]
    if values[-1] < AGREED * count:
        return []
    if 2 * int((leaning < 0).sum()) > count:
        leaning = -leaning
    against = np.flatnonzero(leaning < -AGAINST * float(np.median(np.abs(leaning))))
    return [int(place) for place in against] if 2 * len(against) < count else []


def _copies(products: Floats) -> list[int]:
    """Return who has sent what another has sent before it, or nearly."""
    if len(products) < FEWEST:
        return []
    own = np.diagonal(products)
    distances = np.sqrt(np.maximum(own[:, None] + own - 2 * products, 0.0))
    near = distances < COPY * float(np.median(distances[np.triu_indices(len(products), 1)]))
    return [place for place in range(1, len(products)) if near[place, :place].any()]
