"""The defence ``screen``: whoever is far from all others is left out of a round; as long as nobody is, nothing changes.

Updates (weights less those that were sent) are compared with each other, never with a number of their own:

- **size**: an update longer than ``SIZE`` times the usual one. The usual length is the largest median of any round so
  far: where training has nothing left to learn the median of a round is next to nothing, and one sample that is still
  wrong makes an update many times as long. One that leans as honest ones do (below) may carry what its client has
  learned: it is cut to what is usual in its round, along the weights and across, and counts like any other;
- **copies**: updates nearer to each other than ``COPY`` of their own length count once. Colluders that agree on one
  vector are recognised by it. Clients that have one class each, the same, were seen to be as near as 0.08; what is
  short next to the usual length can do no harm, and is not compared;
- **turned**: training makes a model surer of itself, so that a client's update has a positive product with the weights
  it began with, whatever its classes are; one that is turned round has a negative one. The cosine varies from round to
  round, so its mean over the rounds so far counts (``btfl.runs.standing``), short updates for less, each seen from
  where most went: below minus half the median client's, and farther from it than an honest one of so many is, by how
  far those are apart. It holds where all that is uploaded is trained by cross-entropy under one shared head, and is
  asked of those recipes alone (``Recipe.grows_surer``): an extractor under heads of the clients' own, means and
  covariances have no such sign.

Clients of very different data pull in different directions, and from some round on two honest updates may well be
opposed: tests that compare directions alone (cosines of pairs, distances to neighbours) leave honest clients out there.
In the first round they may agree: all are as far from any solution. So once, in that round and if they do, the main
eigenvector of all pairs' cosines tells two camps apart. Whoever is in the smaller one, and as much against the larger
one as that is for itself, is left out until its leaning speaks for it. One alone is no camp: an honest client with a
single class was seen against all others in the first rounds, and one liar is found by its leaning.

Where many are found turned round, they have led training astray before they were: it begins again from the first
weights, once, in the rounds that are left, as long as these are as many as were done.

Never half of the clients or more are left out, and with fewer than ``FEWEST`` in a round nobody is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIZE, COPY = 30.0, 0.01
"""Honest updates were seen to be up to 14 times as long as the usual one, and no nearer to another than 0.08 of their
length (docs/privacy.md)."""
LEANING = 0.5
"""Of the median client's: an update that is too long must lean so far along the weights to be cut, and not left out."""
SHORT = 0.1
"""Of the usual length: no update below this is taken for a copy."""
AGAINST = 0.5
"""Of the larger camp's mean cosine with itself: an update is against it if its own is so far below zero."""
AGREED = 0.25
"""Of the largest eigenvalue that there can be: with less, clients agree on nothing that one could be against."""
FEWEST = 4
SMALLEST = 2
"""Of the smaller camp. One client alone may have data that nobody else has, a single class for example."""
GROUP = 512
"""With more clients in a round, so many are compared with each other at a time, in their order."""
MOST_PAIRS = 128
"""With more clients in the first round, their directions are not compared: that grows with the square."""


def only_too_long(along: Floats, lengths: Floats, usual: float) -> list[int]:
    """Return the places of updates that are far too long, and lean as honest ones do: they can be cut.

    Parameters
    ----------
    along, lengths : (clients,) how far each update goes along the weights that were sent, and how long it is
    usual : the usual length of an update
    """
    long = lengths > SIZE * usual
    if len(lengths) < FEWEST or usual <= 0 or 2 * long.sum() >= len(lengths):
        return []
    leanings = along / np.maximum(lengths, np.finfo(np.float64).tiny)
    middle = float(np.median(leanings[~long]))
    return [int(place) for place in np.flatnonzero(long & (leanings * np.sign(middle) > LEANING * abs(middle)))]


def screen(
    along: Floats,
    lengths: Floats,
    usual: float,
    near: Callable[[int, int, float], bool],
    turned: Sequence[int] = (),
    misnamed: Sequence[int] = (),
) -> dict[int, str]:
    """Return the places of updates to leave out, and why.

    Parameters
    ----------
    along, lengths : (clients,) how far each update goes along the weights that were sent, and how long it is
    usual : the usual length of an update
    near : whether two updates, by their places, are nearer to each other than a length
    turned : places of those that point away from what the others agree on (``Standing.turned``)
    misnamed : places of those that call classes by other names (``btfl.engines.naming``)
    """
    count = len(lengths)
    if count < FEWEST or usual <= 0:
        return {}
    found = {
        int(place): f"its update is {lengths[place] / usual:.3g} times as long as the usual one"
        for place in np.flatnonzero(lengths > SIZE * usual)
    }
    found |= {place: "its updates point away from where training goes" for place in turned if place not in found}
    found |= {place: "it calls classes by other names than most" for place in misnamed if place not in found}
    rest = [place for place in range(count) if place not in found and lengths[place] > SHORT * usual]
    if len(rest) >= FEWEST:
        copies = _copies(rest, along, lengths, near)
        found |= dict.fromkeys(copies, "its update is a copy of another one")
    return found if 2 * len(found) < count else {}


def smaller_camp(products: Floats) -> list[int]:
    """Return the places of updates that point against the majority, from the products of all pairs."""
    count = len(products)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    if count < FEWEST or not lengths.all():
        return []
    cosines = products / lengths / lengths[:, None]
    np.fill_diagonal(cosines, 0.0)
    larger = larger_camp(cosines, AGREED)
    if larger is None:
        return []
    others = np.maximum(larger.sum() - larger, 1)  # of the larger camp, without oneself
    means = cosines[:, larger].sum(axis=1) / others
    against = np.flatnonzero(~larger & (means < -AGAINST * float(np.median(means[larger]))))
    return [int(place) for place in against] if SMALLEST <= len(against) < count / 2 else []


def larger_camp(agreement: Floats, least: float) -> NDArray[np.bool_] | None:
    """Return who is in the larger of two camps, by the main eigenvector of how much each pair agrees.

    None where it says too little: its eigenvalue is below ``least`` of the largest that there can be.
    """
    values, vectors = np.linalg.eigh(agreement)
    if values[-1] < least * len(agreement):
        return None
    leaning = vectors[:, -1]
    if 2 * int((leaning < 0).sum()) > len(agreement):
        leaning = -leaning
    return np.asarray(leaning > 0)


def _copies(
    places: Sequence[int], along: Floats, lengths: Floats, near: Callable[[int, int, float], bool]
) -> list[int]:
    """Return who has sent what another has sent before it, or nearly.

    Two updates that are near each other are near in length, and go as far along the weights: other pairs are skipped.
    """
    found = set[int]()
    ordered = sorted(places, key=lambda place: float(lengths[place]))
    for number, one in enumerate(ordered):
        for other in ordered[number + 1 :]:
            reach = COPY * float(lengths[other])
            if lengths[other] - lengths[one] > reach:
                break
            if abs(along[other] - along[one]) <= reach and near(one, other, reach):
                found.add(max(one, other))
    return sorted(found)
