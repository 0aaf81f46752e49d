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
HOLDERS = 3
"""A class is judged where so many clients have it, and the head gives it to most of them: what one client alone has,
the head may not have learned yet."""
SIZE = 4.0
"""How many times larger, or smaller, than the median a client's features may be."""
FACTOR = 3.0
"""How many times the median client's log probability a client's may be."""
MARGIN = 7.0
"""Nats below chance from which one class alone is enough."""
SMALLEST_SHARE = 0.05
"""Of a client's samples: a class with fewer is not judged by itself."""
GROUP = 512
"""With more clients, so many are compared with each other at a time, in their order."""


@dataclass(frozen=True, eq=False)
class Likeness:
    """What of one client's sums is compared with the others'."""

    size: float
    """Root of the mean square of its features."""
    longest: float
    """Length of the longest class mean, of its samples or of their copies."""
    shares: Floats
    """(K,) of its samples that are of each class."""
    logs: Floats
    """(K,) log probability that the global head gives each class at its own mean, of samples or of their copies,
    whichever is less; 0 without a head, nan for a class that the client does not have."""

    @classmethod
    def of(cls, summary: Summary, head: LinearHead | None) -> Likeness:
        """Look at one client's sums."""
        plain = summary.class_sums(PLAIN)
        total = max(float(plain.counts.sum()), 1.0)
        size = float(np.sqrt(max(np.trace(plain.scatter), 0.0) / total))
        longest = max(_longest(summary.class_sums(kind)) for kind in KINDS)
        logs = np.fmin.reduce([_logs(summary.class_sums(kind), head) for kind in KINDS])
        return cls(size, longest, plain.counts / total, logs)


def _longest(of: ClassSums) -> float:
    has = of.counts > 0
    return float(np.linalg.norm(of.sums[has] / of.counts[has, None], axis=1).max(initial=0.0))


def _logs(of: ClassSums, head: LinearHead | None) -> Floats:
    has = np.flatnonzero(of.counts > 0)
    found = np.full(len(of.counts), np.nan)
    found[has] = 0.0
    if head is not None and len(has):
        found[has] = log_softmax(head.logits(of.sums[has] / of.counts[has, None]))[np.arange(len(has)), has]
    return found


class Totalling:
    """Takes the clients' summaries, one at a time in their order.

    Parameters
    ----------
    settings : which defence; ``none`` adds up whatever came through the door, any other one leaves out who is far off
    head : the global head, if everyone trained one
    exact : whether sums are as the data give them; those with noise of the clients' own cannot be compared
    """

    def __init__(self, settings: TrainingSettings, head: LinearHead | None, *, exact: bool = True) -> None:
        self._guarded, self._head = exact and settings.defence_in_force != "none", head
        self._names: tuple[str, ...] = ()
        self._running, self._left_out = RunningTotal(), dict[int, str]()
        self._rows, self._clients, self._likenesses = Rows(), list[int](), list[Likeness]()

    def add(self, client: int, summary: Summary) -> None:
        """Take one client's sums, which have been checked."""
        if not self._guarded:
            self._running.add(summary)
            return
        self._names = self._names or tuple(summary.arrays)
        self._rows.add(summary.arrays)
        self._clients.append(client)
        self._likenesses.append(Likeness.of(summary, self._head))
        if len(self._clients) == GROUP:
            self._screen()

    def result(self) -> tuple[Summary, dict[int, str]]:
        """Return the total, and the clients that are not in it, with the reason."""
        self._screen()
        return self._running.total(), self._left_out

    def _screen(self) -> None:
        """Compare the sums that are waiting with each other, and add those of honest clients to the total."""
        found = unlike(self._likenesses)
        for place in range(len(self._clients)):
            if place not in found:
                arrays = self._rows.arrays(place)
                self._running.add(Summary({name: arrays[name] for name in self._names}))
        self._left_out |= {self._clients[place]: why for place, why in found.items()}
        self._rows, self._clients, self._likenesses = Rows(), [], []


def unlike(likenesses: Sequence[Likeness]) -> dict[int, str]:
    """Return the places of those that are far from all others, and why; never half of them or more."""
    if len(likenesses) < FEWEST:
        return {}
    found: dict[int, str] = {}
    for name in ("size", "longest"):
        values = np.array([getattr(one, name) for one in likenesses])
        middle = float(np.median(values))
        far = np.flatnonzero((middle > 0) & ((values > SIZE * middle) | (values * SIZE < middle)))
        found |= {int(place): f"its features are {values[place] / middle:.3g} times the median size" for place in far}
    found |= {place: why for place, why in _other_classes(likenesses).items() if place not in found}
    return dict(sorted(found.items())) if 2 * len(found) < len(likenesses) else {}


def _other_classes(likenesses: Sequence[Likeness]) -> dict[int, str]:
    """Return the places of those whose classes look like others to the global head, where it knows them."""
    shares = np.array([one.shares for one in likenesses])
    logs = np.array([one.logs for one in likenesses])
    chance = -float(np.log(logs.shape[1]))
    known = [k for k in range(logs.shape[1]) if _is_known(logs[:, k], chance)]
    weights = np.where(np.isnan(logs), 0.0, shares)[:, known]
    values = np.where(np.isnan(logs), 0.0, logs)[:, known]
    total = weights.sum(axis=1)
    judged = np.flatnonzero(total > 0)
    if len(judged) < FEWEST:
        return {}
    mean = (weights * values).sum(axis=1)[judged] / total[judged]
    worst = np.where(weights >= SMALLEST_SHARE, values, 0.0).min(axis=1)[judged]
    usual, least = float(np.median(mean)), float(np.median(worst))
    found: dict[int, str] = {}
    for place, one, lowest in zip(judged.tolist(), mean, worst, strict=True):
        if one < chance and one < FACTOR * usual:
            found[place] = "to the global head its classes look like others, more than by chance"
        elif lowest < chance - MARGIN and lowest < FACTOR * least:
            found[place] = "to the global head one of its classes looks like another"
    return found


def _is_known(logs: Floats, chance: float) -> bool:
    """Return whether enough clients have a class, and most of them such that the head gives it more than by chance."""
    there = logs[~np.isnan(logs)]
    return len(there) >= HOLDERS and float(np.median(there)) > chance
