"""What one sample says (CBU): the entropies of both heads and the rectified likelihood ratio tau_hat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from btfl.methods.btfl.settings import BayesianSettings

Floats = NDArray[np.float64]


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
    """Return log tau_hat = u_l log q_hat_l - u_g log q_hat_g.

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
