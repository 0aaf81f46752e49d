"""Softmax and entropy, each row added up on its own: the same to the bit in a batch of any size."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def log_softmax(logits: Floats) -> Floats:
    """Return log-probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total: Floats = np.exp(shifted).sum(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(total))


def entropy(log_probabilities: Floats) -> Floats:
    """Return the entropy in nats along the last axis; never negative, not even by rounding."""
    total = (np.exp(log_probabilities) * log_probabilities).sum(axis=-1)
    return np.asarray(np.maximum(-total, 0.0))


def softmax_parts(
    logits: Floats, large: NDArray[np.bool_] | bool | None = None
) -> tuple[Floats, Floats, Floats, Floats | None]:
    """Return weights w, totals S, logits s and l, so that softmax = w / S along the last axis, with w = exp(s).

    The logits are used up: s are they themselves, lowered in place by their largest where they are said to be
    ``large``. l, (..., 1), is by how much; None if nothing was lowered. Each row is added up on its own (``vecdot``),
    so that it is the same to the bit in a batch of any size.
    """
    lowered: Floats | None = None
    if large is not None and large is not False:
        first = logits[..., :1].copy()
        logits -= np.where(large, np.maximum.reduce(logits, axis=-1, keepdims=True), 0.0)
        lowered = first - logits[..., :1]
    weights: Floats = np.exp(logits)
    totals: Floats = np.vecdot(weights, _ones(logits.shape[-1]))
    return weights, totals, logits, lowered


def weights_of_one(logits: Floats, large: bool) -> Floats:
    """Turn a single sample's (heads, classes) logits, in place, into the weights that ``softmax_parts`` has for it."""
    if large:
        logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)
    return np.exp(logits, logits)


def entropy_of_parts(weights: Floats, totals: Floats, logits: Floats) -> Floats:
    """Return the entropy in nats from ``softmax_parts``: H = log S - sum(w s)/S."""
    entropies: Floats = np.log(totals) - np.vecdot(weights, logits) / totals
    return np.maximum(entropies, 0.0)


@cache
def _ones(size: int) -> Floats:
    return np.ones(size)
