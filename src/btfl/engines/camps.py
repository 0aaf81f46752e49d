"""Two camps that call the classes by different names: a part of the defence ``screen``, over all rounds.

``btfl.engines.naming`` looks at the first round alone, and finds nobody where clients have few classes in common. But
in every round all clients begin with the same features and the same head, and whoever has more of a class than the
model says raises that class's row towards what it calls by that name. So the raised rows of two honest clients go the
same way wherever both raise the same one, round after round, and so do those of two clients that flip labels alike; an
honest client's and theirs do not. Both sums that it takes for a mean cosine of each pair are kept from round to round
(``btfl.runs.standing``); what the rows of all clients have in common, the mean feature, is taken out before.

A smaller camp is named if all of this holds: it has members that agree with each other, the camps agree with each other
far less than either with itself, most pairs across have raised a row in common at all, and the rows of the smaller camp
go where the larger one's rows of *other* classes go. The last tells a camp with other names from one with other data:
the same classes in another style have no better name elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.engines.naming import few_enough
from btfl.engines.screening import larger_camp

Floats = NDArray[np.float64]

AGREED = 0.32
"""Mean cosine that those who agree must have, at least: with less, clients have no names in common, and the eigenvector
parts them by chance. Honest clients were seen at 0.22, parted so; those with flipped labels at 0.43 and above."""
APART = 0.2
"""Of the mean cosine within each camp: that across is below it where names differ. Honest clients were seen at 0.32 and
above, those with flipped labels at 0.14 and below from the fifth round on (docs/privacy.md)."""
ONE = 0.6
"""Of the mean cosine within the smaller camp: with less in the larger one, that is a mixture, of liars and a few honest
clients for example, and the smaller one may be the honest ones (docs/privacy.md)."""
MET = 0.5
"""Share of the pairs across the camps that must have raised a row in common."""
OTHERWISE = 0.75
"""Share of the smaller camp's rows, by their lengths, that must fit another class of the larger camp better."""
POSITIVE = 0.5
"""Cosine of the common direction with that of equal features: with less, features are not mostly positive, and which
rows were raised cannot be told."""
SMALLEST = 2
"""A client alone agrees with nobody: whether it is another camp cannot be told."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Where the clients of a round have moved the rows of the head that they raised."""

    rows: Floats
    """(clients, K, d) steps of raised rows without what all have in common; zeros for others."""
    products: Floats
    """(clients, clients) products of the rows that both have raised, added up."""
    sizes: Floats
    """(clients, clients) product of the lengths of the same rows, taken together; 0 where there is no such row."""


def moves_of(steps: Floats) -> Moves | None:
    """Return how the clients have raised rows; None where it cannot be told.

    Parameters
    ----------
    steps : (clients, K, d) how far each client has moved the rows of a head that was the same for all
    """
    count, classes, size = steps.shape
    if not few_enough(count, classes):
        return None
    common = _main_direction(steps.reshape(-1, size))
    if abs(common.sum()) < POSITIVE * np.sqrt(size):
        return None
    raised = steps.sum(axis=2) > 0
    rows = np.where(raised[:, :, None], steps - (steps @ common)[:, :, None] * common, 0.0)
    squares = (rows**2).sum(axis=2) @ raised.T  # of the first, over the rows that the second has raised, too
    sizes = np.sqrt(squares * squares.T)
    products = rows.reshape(count, -1) @ rows.reshape(count, -1).T
    np.fill_diagonal(sizes, 0.0)
    return Moves(rows, products, sizes)


def _main_direction(rows: Floats) -> Floats:
    """Return the unit vector along which the rows are longest; by the smaller of both products, rows may be wide."""
    if len(rows) >= rows.shape[1]:
        return np.asarray(np.linalg.eigh(rows.T @ rows)[1][:, -1])
    found = rows.T @ np.linalg.eigh(rows @ rows.T)[1][:, -1]
    return np.asarray(found / max(float(np.linalg.norm(found)), np.finfo(np.float64).tiny))


def other_camp(agreement: Floats, met: NDArray[np.bool_], rows: Floats) -> list[int]:
    """Return the places of the smaller of two camps, if they call the classes by different names.

    Parameters
    ----------
    agreement : (clients, clients) mean cosine of each pair's raised rows over the rounds so far, 0 where they never met
    met : (clients, clients) whether a pair ever raised the same row; not with itself
    rows : (clients, K, d) the raised rows of this round (``Moves``)
    """
    if not met.any():
        return []
    usual = float(np.quantile(agreement[met], 0.75))  # of those that agree: half of all pairs, with two equal camps
    if usual < AGREED:
        return []
    larger = larger_camp(np.where(met, agreement - usual / 2, 0.0), 0.0)
    if larger is None:
        return []
    smaller = ~larger & met.any(axis=1)
    if smaller.sum() < SMALLEST or 2 * smaller.sum() >= len(larger):
        return []
    most, fewer = (_mean(agreement, met, one, one) for one in (larger, smaller))
    within = min(most, fewer)
    if within < AGREED or most < ONE * fewer:
        return []
    across = _mean(agreement, met, larger, smaller)
    known = float(met[np.ix_(larger, smaller)].mean()) >= MET
    if not known or not across < APART * within or _otherwise(rows[larger], rows[smaller]) < OTHERWISE:
        return []
    return [int(place) for place in np.flatnonzero(smaller)]


def _mean(agreement: Floats, met: NDArray[np.bool_], one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Return the mean over the pairs of two groups that have met; 0 without any."""
    there = met[np.ix_(one, other)]
    return float(agreement[np.ix_(one, other)][there].mean()) if there.any() else 0.0


def _otherwise(larger: Floats, smaller: Floats) -> float:
    """Return the share of the smaller camp's rows, by length, that go where another row of the larger camp goes."""
    theirs, own = larger.sum(axis=0), smaller.sum(axis=0)
    lengths, weights = np.linalg.norm(theirs, axis=1), np.linalg.norm(own, axis=1)
    tiny = np.finfo(np.float64).tiny
    cosines = np.where(lengths > 0, own @ theirs.T / np.maximum(weights[:, None] * lengths, tiny), -np.inf)
    same = np.diagonal(cosines)
    others = np.where(np.eye(len(same), dtype=bool), -np.inf, cosines).max(axis=1)
    weights = np.where(lengths > 0, weights, 0.0)
    return float((weights * (others > same)).sum() / max(weights.sum(), tiny))
