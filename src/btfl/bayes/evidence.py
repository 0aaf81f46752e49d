"""What one sample says (CBU): the entropies of both heads and the rectified likelihood ratio tau_hat."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from btfl.bayes.settings import BayesianSettings

Floats = NDArray[np.float64]


def log_softmax(logits: Floats) -> Floats:
    """Give log-probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total: Floats = np.exp(shifted).sum(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(total))


def entropy(log_probabilities: Floats) -> Floats:
    """Give the entropy in nats along the last axis; never negative, not even by rounding."""
    total = (np.exp(log_probabilities) * log_probabilities).sum(axis=-1)
    return np.asarray(np.maximum(-total, 0.0))


def softmax_parts(logits: Floats, large: NDArray[np.bool_] | bool | None = None) -> tuple[Floats, Floats, Floats]:
    """Give weights w, totals S and logits s, so that softmax = w / S along the last axis, with w = exp(s).

    s is the logits themselves; only where they are said to be ``large``, less their largest. Each row is added up on
    its own (``vecdot``), so that it is the same to the bit in a batch of any size.
    """
    if large is not None and large is not False:
        logits = logits - np.where(large, np.maximum.reduce(logits, axis=-1, keepdims=True), 0.0)
    weights: Floats = np.exp(logits)
    totals: Floats = np.vecdot(weights, _ones(logits.shape[-1]))
    return weights, totals, logits


def entropy_of_parts(weights: Floats, totals: Floats, logits: Floats) -> Floats:
    """Give the entropy in nats from ``softmax_parts``: H = log S - sum(w s)/S."""
    entropies: Floats = np.log(totals) - np.vecdot(weights, logits) / totals
    return np.maximum(entropies, 0.0)


@cache
def _ones(size: int) -> Floats:
    return np.ones(size)


def log_rectified_ratio(
    log_q_local: Floats,
    log_q_global: Floats,
    local_entropy: Floats,
    global_entropy: Floats,
    local_mean: float,
    global_mean: float,
    dimensions: int,
    settings: BayesianSettings,
) -> Floats:
    """Give log tau_hat = u_l log q_hat_l - u_g log q_hat_g.

    q_hat = Q^(1/d) keeps the spread independent of the feature size; u = exp((H - Hbar)/Hbar) makes a head that is
    less sure than usual count as less likely (its likelihood is below 1, and u is its exponent).
    """
    if not settings.use_characteristic:
        return np.zeros_like(log_q_local)
    log_ratio = (
        _exponent(local_entropy, local_mean, settings) * log_q_local
        - _exponent(global_entropy, settings.global_entropy_scale or global_mean, settings) * log_q_global
    ) / dimensions
    log_ratio = np.clip(log_ratio, -settings.log_tau_limit, settings.log_tau_limit)
    return log_ratio if settings.squash is None else _squashed(log_ratio, settings.squash)


def _exponent(entropy_: Floats, mean: float, settings: BayesianSettings) -> Floats | float:
    if not settings.use_entropy:
        return 1.0
    return np.exp(np.minimum((entropy_ - mean) / mean, settings.log_u_limit))


def _squashed(log_ratio: Floats, bound: float) -> Floats:
    """s -> k tanh(s - 1) + 1 for s > 1, and 1/(k tanh(1/s - 1) + 1) for s < 1."""
    size = np.log1p(bound * np.tanh(np.expm1(np.abs(log_ratio))))
    return np.copysign(size, log_ratio)
