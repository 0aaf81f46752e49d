"""Everyone's sums from each client's, without those that speak for other classes or other features than all others.

As long as nobody does, the total is that of all, to the bit. A client is judged by what the server has anyway: the
global head, which was trained by everyone, and the sizes of the others' features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.core.summary import RunningTotal, Summary
from btfl.core.sums import KINDS, PLAIN, ClassSums
from btfl.engines.rows import Rows
from btfl.recipes.settings import TrainingSettings

Floats = NDArray[np.float64]

FEWEST = 4
"""With fewer clients nobody is left out: there is no majority to compare with."""
SIZE = 4.0
"""How many times larger, or smaller, than the median a client's features may be."""
FACTOR = 3.0
"""How many times the median client's log probability a client's may be."""
MARGIN = 7.0
"""Nats below chance from which one class alone is enough."""
SMALLEST_SHARE = 0.05
"""Of a client's samples: a class with fewer is not judged by itself."""


@dataclass(frozen=True)
class Likeness:
    """What of one client's sums is compared with the others'."""

    size: float
    """Root of the mean square of its features."""
    longest: float
    """Length of the longest class mean, of its samples or of their copies."""
    likelihood: float
    """Mean log probability that the global head gives the classes at their own means; 0 without a head."""
    worst: float
    """The least of them, among the classes that have enough samples."""

    @classmethod
    def of(cls, summary: Summary, head: LinearHead | None) -> Likeness:
        """Look at one client's sums."""
        plain = summary.class_sums(PLAIN)
        size = float(np.sqrt(max(np.trace(plain.scatter), 0.0) / max(plain.counts.sum(), 1.0)))
        longest = max(_longest(summary.class_sums(kind)) for kind in KINDS)
        if head is None:
            return cls(size, longest, 0.0, 0.0)
        found = [_likelihoods(summary.class_sums(kind), head) for kind in KINDS]
        return cls(size, longest, min(mean for mean, _ in found), min(worst for _, worst in found))


def _longest(of: ClassSums) -> float:
    has = of.counts > 0
    return float(np.linalg.norm(of.sums[has] / of.counts[has, None], axis=1).max(initial=0.0))


def _likelihoods(of: ClassSums, head: LinearHead) -> tuple[float, float]:
    has = np.flatnonzero(of.counts > 0)
    if not len(has):
        return 0.0, 0.0
    counts = of.counts[has]
    logs = log_softmax(head.logits(of.sums[has] / counts[:, None]))[np.arange(len(has)), has]
    enough = counts >= SMALLEST_SHARE * counts.sum()
    return float(counts @ logs / counts.sum()), float(logs[enough].min(initial=0.0))


class Totalling:
    """Takes the clients' summaries, one at a time in their order.

    Parameters
    ----------
    settings : which defence; ``none`` adds up whatever came through the door, any other one leaves out who is far off
    head : the global head, if everyone trained one
    """

    def __init__(self, settings: TrainingSettings, head: LinearHead | None) -> None:
        self._guarded, self._head = settings.defence != "none", head
        self._running = RunningTotal()
        self._rows, self._clients, self._likenesses = Rows(), list[int](), list[Likeness]()

    def add(self, client: int, summary: Summary) -> None:
        """Take one client's sums, which have been checked."""
        self._running.add(summary)
        if self._guarded:
            self._rows.add(summary.arrays)
            self._clients.append(client)
            self._likenesses.append(Likeness.of(summary, self._head))

    def result(self) -> tuple[Summary, dict[int, str]]:
        """Return the total, and the clients that are not in it, with the reason."""
        found = unlike(self._likenesses, self._running.classes)
        if not found:
            return self._running.total(), {}
        kept = RunningTotal()
        for place in range(len(self._clients)):
            if place not in found:
                kept.add(Summary.from_arrays(self._rows.arrays(place)))
        return kept.total(), {self._clients[place]: why for place, why in found.items()}


def unlike(likenesses: Sequence[Likeness], classes: int) -> dict[int, str]:
    """Return the places of those that are far from all others, and why; never half of them or more."""
    if len(likenesses) < FEWEST:
        return {}
    found: dict[int, str] = {}
    for name in ("size", "longest"):
        values = np.array([getattr(one, name) for one in likenesses])
        middle = float(np.median(values))
        far = np.flatnonzero((middle > 0) & ((values > SIZE * middle) | (values * SIZE < middle)))
        found |= {int(place): f"its features are {values[place] / middle:.3g} times the median size" for place in far}
    chance = -float(np.log(classes))
    mean = np.array([one.likelihood for one in likenesses])
    worst = np.array([one.worst for one in likenesses])
    for place in range(len(likenesses)):
        if place in found:
            continue
        if mean[place] < chance and mean[place] < FACTOR * float(np.median(mean)):
            found[place] = "to the global head its classes look like others, more than by chance"
        elif worst[place] < chance - MARGIN and worst[place] < FACTOR * float(np.median(worst)):
            found[place] = "to the global head one of its classes looks like another"
    return dict(sorted(found.items())) if 2 * len(found) < len(likenesses) else {}
