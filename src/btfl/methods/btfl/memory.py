"""The memory of the stream (HBU): a Beta distribution over m, the share of external samples.

A sample whose likelihood ratio and both entropies agree is an event; an external event raises ``a``, an internal one
``b``. (The paper's text says it the other way round, against its own derivation: m is the probability of EXD.) When
a + b exceeds lambda the history is pruned to its proportions, so that the recent stream keeps its say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from btfl.core.arithmetic import Arithmetic
from btfl.methods.btfl.settings import BtflSettings

Floats = NDArray[np.float64]
Events = NDArray[np.int8]

IND, NO_EVENT, EXD = -1, 0, 1


class Beta(NamedTuple):
    """Beta(m; a, b): a - 1 external and b - 1 internal events remembered."""

    a: float = 1.0
    b: float = 1.0


def detect(xp: Arithmetic, log_tau: Any, local_excess: Any, global_excess: Any, settings: BtflSettings) -> Any:
    """Return IND, EXD or no event for each sample; an excess is an entropy minus its mean over the training set.

    IND: tau > 1, the personal head surer than usual, the global head less sure. EXD: the reverse of all three.
    Ties are no event.
    """
    if not settings.use_entropy:
        return xp.minus(log_tau < 0, log_tau > 0)
    external = (log_tau < 0) & (local_excess > 0) & (global_excess < 0)
    return xp.minus(external, (log_tau > 0) & (local_excess < 0) & (global_excess > 0))


def count(prior: Beta, external: int, internal: int, settings: BtflSettings) -> Beta:
    """Add events to the prior; then shrink a history longer than lambda to its proportions."""
    a, b = prior.a + external, prior.b + internal
    total = a + b
    if total > settings.prune_above:
        a, b = 1.0 + settings.prune_to * a / total, 1.0 + settings.prune_to * b / total
    return Beta(a, b)


def take(prior: Beta, event: Any, settings: BtflSettings) -> tuple[Any, Any, Beta]:
    """Feed events to the memory; return the a and b each sample is judged with, and the memory afterwards.

    ``event`` is that of a single sample, or (samples,) of a batch.
    """
    if isinstance(event, int):
        after = count(prior, event == EXD, event == IND, settings) if event and settings.use_history else prior
        return *(after if settings.count == "before" else prior), after
    return _take_batch(prior, event, settings)


def _take_batch(prior: Beta, events: Events, settings: BtflSettings) -> tuple[Floats, Floats, Beta]:
    a, b = np.full(len(events), prior.a), np.full(len(events), prior.b)
    if not settings.use_history:
        return a, b, prior
    before = settings.count == "before"
    if settings.batch == "batch":
        after = count(prior, int((events == EXD).sum()), int((events == IND).sum()), settings)
        if before:
            a[:], b[:] = after
        return a, b, after
    # Nothing happens between events, so only they are visited, and each holds until the next.
    places = np.flatnonzero(events)
    if not len(places):
        return a, b, prior
    history = [prior]
    for event in events[places].tolist():
        prior = count(prior, event == EXD, event == IND, settings)
        history.append(prior)
    bounds = np.empty(len(places) + 2, dtype=np.intp)
    bounds[0], bounds[1:-1], bounds[-1] = 0, places if before else places + 1, len(events)
    a, b = np.repeat(np.array(history), bounds[1:] - bounds[:-1], axis=0).T
    return np.ascontiguousarray(a), np.ascontiguousarray(b), prior
