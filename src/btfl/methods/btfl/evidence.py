"""What one sample says (CBU): the rectified likelihood ratio tau_hat."""

from __future__ import annotations

from typing import Any

import numpy as np

from btfl.core.arithmetic import Arithmetic
from btfl.methods.btfl.settings import BtflSettings


def log_rectified_ratio(
    xp: Arithmetic,
    log_q: tuple[Any, Any],
    entropies: tuple[Any, Any],
    means: tuple[float, float],
    dimensions: int,
    settings: BtflSettings,
) -> Any:
    """Return log tau_hat = u_l log q_hat_l - u_g log q_hat_g; pairs are local first, global second.

    q_hat = Q^(1/d) keeps the spread independent of the feature size; u = exp((H - Hbar)/Hbar) makes a head that is
    less sure than usual count as less likely (its likelihood is below 1, and u is its exponent).
    """
    log_q_local, log_q_global = log_q
    if not settings.use_characteristic:
        return log_q_local - log_q_local  # zero, in its shape
    if settings.use_entropy:
        (h_local, h_global), (mean, scale), limit = entropies, means, settings.log_u_limit
        scale = settings.global_entropy_scale or scale
        log_q_local = xp.exp(xp.minimum((h_local - mean) / mean, limit)) * log_q_local
        log_q_global = xp.exp(xp.minimum((h_global - scale) / scale, limit)) * log_q_global
    log_ratio = xp.clip((log_q_local - log_q_global) / dimensions, settings.log_tau_limit)
    return log_ratio if settings.squash is None else _squashed(log_ratio, settings.squash)


def _squashed(log_ratio: Any, bound: float) -> Any:
    """s -> k tanh(s - 1) + 1 for s > 1, and 1/(k tanh(1/s - 1) + 1) for s < 1."""
    size = np.log1p(bound * np.tanh(np.expm1(np.abs(log_ratio))))
    return np.copysign(size, log_ratio)
