"""Softmax and entropy, each row added up on its own: the same to the bit in a batch of any size."""

from __future__ import annotations

from collections.abc import Sequence
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


def softmax_weights(logits: Floats, large: NDArray[np.bool_] | bool | None = None) -> tuple[Floats, Floats | None]:
    """Return weights w = exp(s) along the last axis and l, so that softmax = w / sum(w); the logits become s.

    s are the logits, lowered in place by their largest where they are said to be ``large``. l, (..., 1), is by how
    much; None if nothing was lowered.
    """
    lowered: Floats | None = None
    if large is not None and large is not False:
        first = logits[..., :1].copy()
        logits -= np.where(large, np.maximum.reduce(logits, axis=-1, keepdims=True), 0.0)
        lowered = first - logits[..., :1]
    return np.exp(logits), lowered


def softmax_parts(logits: Floats, large: NDArray[np.bool_] | bool | None = None) -> tuple[Floats, Floats, Floats]:
    """Return weights w, totals S and logits s, so that softmax = w / S along the last axis, with w = exp(s).

    The logits are used up: s are they themselves, as ``softmax_weights`` leaves them. Each row is added up on its own
    (``vecdot``), so that it is the same to the bit in a batch of any size.
    """
    weights, _ = softmax_weights(logits, large)
    totals: Floats = np.vecdot(weights, _ones(logits.shape[-1]))
    return weights, totals, logits


def mixed(shares: Floats, weights: Floats, answers: Floats | None = None) -> Floats:
    """Return (samples, classes): the heads' weights, (samples, heads, classes), added up with (samples, heads) shares.

    One product for each sample, whatever the batch; written into ``answers`` if there is such an array.
    """
    out = None if answers is None else answers[:, None]
    rows: Floats = np.matmul(shares[:, None], weights, out)
    return rows[:, 0]


def mixed_of_one(shares: Sequence[float], weights: Floats) -> Floats:
    """Return (1, classes) of a sample's (heads, classes) weights: the product of ``mixed``, with less around it."""
    row: Floats = np.array((shares,)).dot(weights)
    return row


def entropy_of_parts(weights: Floats, totals: Floats, logits: Floats) -> Floats:
    """Return the entropy in nats from ``softmax_parts``: H = log S - sum(w s)/S."""
    entropies: Floats = np.log(totals) - np.vecdot(weights, logits) / totals
    return np.maximum(entropies, 0.0)


@cache
def _ones(size: int) -> Floats:
    return np.ones(size)
