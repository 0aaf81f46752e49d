"""The weight of the global head, e = E[m_hat], without an integral (DPI, step 6 of the method).

With m ~ Beta(a, b) the share of external samples and tau the likelihood ratio of this one,

    m_hat = m / (m + (1 - m) tau),        e = E[m_hat].

The paper integrates numerically. The expectation is a Gauss hypergeometric function with its argument in [0, 1):

    tau <= 1:  e = a/(a+b)         * 2F1(1, b;     a+b+1; 1 - tau)
    tau >  1:  e = a/((a+b) * tau) * 2F1(1, a + 1; a+b+1; 1 - 1/tau)

For tau between 1/10 and 10 scipy sums that series: fast and accurate for every a and b. Nearer to the singularity at
argument 1 scipy's hyp2f1 is slow, loses digits, and returns NaN or inf once a or b reach the hundreds; there the same
expectation is a trapezoid sum over t = logit(m), whose integrand is analytic and decays exponentially on both sides,
so that the sum converges geometrically (about 1e-12 with 96 nodes).

Where a or b exceed ``_LARGE`` both lose digits, because the logarithm of the Beta function does. There e is the ratio
of two such sums around the peak of the density, which needs no Beta function: right to 1e-13 up to
``LARGEST_PARAMETER``.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np
import scipy  # loads scipy.special when it is first used, so that importing btfl is quick
from numpy.typing import ArrayLike, NDArray

from btfl.errors import InputError

Floats = NDArray[np.float64]

SMALLEST_PARAMETER = 0.5  # Jeffreys' prior; below it the tails of logit(m) are too long for a fixed number of nodes
LARGEST_PARAMETER = 1e12  # beyond it a * t has too few digits left behind the point
_LARGE = 1e4  # from here on a ratio of two sums
_SERIES_LIMIT = float(np.log(10.0))  # |log tau| up to which the series is summed
_LOG_TAU_LIMIT = 600.0  # beyond it e is 0 or 1 to all digits, and exp(-t) tau would overflow
_NODES = np.arange(96, dtype=np.float64)
_MANY_NODES = 768  # where one parameter is small and the other large, the density has a long tail
_DROP = 30.0  # the sum stops where the integrand has fallen by exp(-30)
_FARTHEST = 700.0  # exp of it is still a number
_CHUNK = 512  # rows at a time: the work arrays stay in the processor's cache


@overload
def expected_weight(a: float, b: float, tau: float, *, complement: bool = False) -> float: ...
@overload
def expected_weight(a: ArrayLike, b: ArrayLike, tau: ArrayLike, *, complement: bool = False) -> Any: ...


def expected_weight(a: ArrayLike, b: ArrayLike, tau: ArrayLike, *, complement: bool = False) -> Any:
    """Return e = E[m / (m + (1 - m) tau)] for m ~ Beta(a, b), elementwise in float64.

    Parameters
    ----------
    a, b : Beta parameters, up to 1e12; of any shapes that broadcast. Scalars give a float
    tau : ratio of likelihoods; may be 0 (e = 1) or infinite (e = 0)
    complement : return 1 - e instead, to full relative precision where e is close to 1

    Example
    -------
    >>> expected_weight(3.0, 1.0, 1.0)
    0.75
    """
    a_, b_, tau_ = (np.asarray(x, dtype=np.float64) for x in (a, b, tau))
    for name, value in (("a", a_), ("b", b_)):
        if not ((value >= SMALLEST_PARAMETER) & (value <= LARGEST_PARAMETER)).all():
            raise InputError(
                f"{name} is a Beta parameter, from {SMALLEST_PARAMETER} to {LARGEST_PARAMETER:g}; what was given has "
                f"{value.min():g} to {value.max():g}"
            )
    if np.isnan(tau_).any() or (tau_ < 0).any():
        raise InputError("tau is a ratio of likelihoods: it must be a number and not negative")
    with np.errstate(divide="ignore"):
        log_tau = np.log(tau_)
    a_, b_, log_tau = np.broadcast_arrays(a_, b_, log_tau)
    e, one_minus_e = weight_and_complement(a_.ravel(), b_.ravel(), log_tau.ravel())
    result = (one_minus_e if complement else e).reshape(a_.shape)
    limit = np.isinf(log_tau)
    if limit.any():
        result = np.where(limit, (log_tau < 0) != complement, result)
    return float(result) if result.ndim == 0 else result


def weight_and_complement(a: Floats, b: Floats, log_tau: Floats) -> tuple[Floats, Floats]:
    """Return e and 1 - e for flat arrays of equal length; nothing is checked here."""
    if (large := np.maximum(a, b) > _LARGE).any():
        e, one_minus_e = np.empty_like(a), np.empty_like(a)
        for rows, compute in ((large, _by_ratio), (~large, weight_and_complement)):
            if rows.any():
                e[rows], one_minus_e[rows] = compute(a[rows], b[rows], log_tau[rows])
        return e, one_minus_e
    series = np.abs(log_tau) <= _SERIES_LIMIT
    if series.all():
        e = _by_series(a, b, log_tau)
        return e, 1.0 - e
    e, one_minus_e = np.empty_like(a), np.empty_like(a)
    e[series] = _by_series(a[series], b[series], log_tau[series])
    one_minus_e[series] = 1.0 - e[series]

    far = ~series
    a, b, log_tau = a[far], b[far], np.clip(log_tau[far], -_LOG_TAU_LIMIT, _LOG_TAU_LIMIT)
    # e(a, b, tau) + e(b, a, 1/tau) = 1: always sum the smaller of the two, so that both keep their digits.
    mirrored = log_tau < np.log(a / b)
    smaller = _by_quadrature(np.where(mirrored, b, a), np.where(mirrored, a, b), np.where(mirrored, -log_tau, log_tau))
    e[far] = np.where(mirrored, 1.0 - smaller, smaller)
    one_minus_e[far] = np.where(mirrored, smaller, 1.0 - smaller)
    return e, one_minus_e


def weight_of_one(a: float, b: float, log_tau: float) -> float:
    """Return e of a single sample: the bits of ``weight_and_complement`` without its arrays."""
    if a > _LARGE or b > _LARGE:
        return float(_by_ratio(*np.array([[a], [b], [log_tau]]))[0][0])
    if abs(log_tau) > _SERIES_LIMIT:
        log_tau = min(max(log_tau, -_LOG_TAU_LIMIT), _LOG_TAU_LIMIT)
        mirrored = log_tau < np.log(a / b)
        smaller = _quadrature_of_one(b, a, -log_tau) if mirrored else _quadrature_of_one(a, b, log_tau)
        return 1.0 - smaller if mirrored else smaller
    tau, total = float(np.exp(-abs(log_tau))), a + b
    if log_tau <= 0:
        return float(a / total * scipy.special.hyp2f1(1.0, b, total + 1.0, 1.0 - tau))
    return float(a / total * tau * scipy.special.hyp2f1(1.0, a + 1.0, total + 1.0, 1.0 - tau))


def _by_series(a: Floats, b: Floats, log_tau: Floats) -> Floats:
    below = log_tau <= 0
    tau = np.exp(-np.abs(log_tau))  # or 1/tau: at most 1
    total = a + b
    series = scipy.special.hyp2f1(1.0, np.where(below, b, a + 1.0), total + 1.0, 1.0 - tau)
    return np.asarray(a / total * np.where(below, 1.0, tau) * series, dtype=np.float64)


def _by_quadrature(a: Floats, b: Floats, log_tau: Floats) -> Floats:
    cases = a, b, log_tau, *_range(a, b, log_tau)
    result = np.empty_like(a)
    for start in range(0, len(a), _CHUNK):
        columns = [case[start : start + _CHUNK, None] for case in cases]
        result[start : start + _CHUNK] = _trapezoid_in_logit_space(*columns)
    return result


def _quadrature_of_one(a: float, b: float, log_tau: float) -> float:
    # numpy's functions are quick on plain floats, and slow on arrays of one
    return float(_trapezoid_in_logit_space(a, b, log_tau, *_range_of_one(a, b, log_tau)))


def _range(a: Floats, b: Floats, log_tau: Floats) -> tuple[Floats, Floats, Floats]:
    """Return where to begin and end the sum over t = logit(m), and the highest log of the integrand.

    The integrand is exp(f(t)), f(t) = a t - (a+b) log(1 + exp t) - log(1 + tau exp(-t)): concave, so one peak.
    """
    total, tau = a + b, np.exp(log_tau)

    # The peak, f' = 0, is the positive root of b x^2 - (a + tau (1 - b)) x - tau (a + 1) = 0 with x = exp(t).
    linear = a + tau * (1.0 - b)
    # hypot, not sqrt of the sum of squares: tau may be as large as exp(690)
    size = abs(linear) + np.hypot(linear, 2.0 * np.sqrt(b * (a + 1.0)) * np.sqrt(tau))
    x = np.where(linear >= 0, size / (2 * b), 2 * tau * (a + 1.0) / size)
    y = tau / x
    peak = np.log(x)
    height = a * peak - total * np.log1p(x) - np.log1p(y)

    # Where the integrand has fallen far enough: from outside, Newton's steps on a concave function stay outside.
    width = np.sqrt(2 * _DROP / (total * (x / (1 + x)) / (1 + x) + (y / (1 + y)) / (1 + y)))
    left = np.maximum(peak - width - _DROP / (a + 1), np.minimum(peak, 0) - (_DROP + 2) / a)
    right = np.minimum(peak + width + _DROP / b, np.maximum(np.maximum(peak, log_tau), 0) + (_DROP + 2) / b)
    left, right = _newton(np.stack([left, right]), a, total, tau, height)
    return left, right, height


def _newton(t: Any, a: Any, total: Any, tau: Any, height: Any) -> Any:
    for _ in range(2):
        x = np.exp(t)
        y = tau / x
        value = a * t - total * np.log1p(x) - np.log1p(y)
        slope = a - total * (x / (1 + x)) + y / (1 + y)
        t = t - (value - height + _DROP) / slope
        # on a long plateau the slope leads too far: the second step comes back, unless exp has overflown by then
        t = np.minimum(np.maximum(t, -_FARTHEST), _FARTHEST) if isinstance(t, np.ndarray) else _within(t)
    return t


def _within(t: float) -> float:
    return min(max(t, -_FARTHEST), _FARTHEST)


def _range_of_one(a: float, b: float, log_tau: float) -> tuple[float, float, float]:
    """Return the same for floats, to the bit: numpy for what two libraries may round differently, and Python else."""
    total, tau = a + b, float(np.exp(log_tau))
    linear = a + tau * (1.0 - b)
    size = abs(linear) + float(np.hypot(linear, 2.0 * math.sqrt(b * (a + 1.0)) * math.sqrt(tau)))
    x = size / (2 * b) if linear >= 0 else 2 * tau * (a + 1.0) / size
    y = tau / x
    peak = float(np.log(x))
    height = a * peak - total * float(np.log1p(x)) - float(np.log1p(y))

    width = math.sqrt(2 * _DROP / (total * (x / (1 + x)) / (1 + x) + (y / (1 + y)) / (1 + y)))
    left = max(peak - width - _DROP / (a + 1), min(peak, 0) - (_DROP + 2) / a)
    right = min(peak + width + _DROP / b, max(peak, log_tau, 0) + (_DROP + 2) / b)
    return _newton(left, a, total, tau, height), _newton(right, a, total, tau, height), height


def _trapezoid_in_logit_space(a: Any, b: Any, log_tau: Any, left: Any, right: Any, height: Any) -> Any:
    """Return (rows,) sums of (rows, 1) columns, or one of floats."""
    step = (right - left) / (len(_NODES) - 1)
    odds = np.exp(left + step * _NODES)  # m / (1 - m) at each node
    exponent = (a * left - height) + (a * step) * _NODES
    exponent -= (a + b) * np.log(1.0 + odds)
    terms = np.exp(exponent, out=exponent)
    odds /= odds + np.exp(log_tau)  # m_hat at each node
    scale = np.exp(height - scipy.special.betaln(a, b))
    if isinstance(step, np.ndarray):
        step, scale = step[:, 0], scale[:, 0]
    return np.vecdot(terms, odds) * step * scale


def _by_ratio(a: Floats, b: Floats, log_tau: Floats) -> tuple[Floats, Floats]:
    """Return e and 1 - e as ratios of sums over u = logit(m) - log(a/b), the distance from the density's peak.

    The log density there is a u - (a+b) log(1 + a/(a+b) (exp(u) - 1)), or the same with a, b and u, -u exchanged: of
    the two, the one that subtracts the smaller numbers.
    """
    total, least = a + b, np.minimum(a, b)
    width = np.sqrt(2 * _DROP * total / a / b)
    left, right = -width - 2 * _DROP / a, width + 2 * _DROP / b
    u = left[:, None] + ((right - left) / (_MANY_NODES - 1))[:, None] * np.arange(_MANY_NODES)
    towards = np.where((a <= b)[:, None], u, -u)
    log_density = least[:, None] * towards - total[:, None] * np.log1p((least / total)[:, None] * np.expm1(towards))
    density = np.exp(log_density)
    logit = u + (np.log(a / b) - np.clip(log_tau, -_LOG_TAU_LIMIT, _LOG_TAU_LIMIT))[:, None]
    external, internal = (np.vecdot(density, scipy.special.expit(part)) for part in (logit, -logit))
    return external / (external + internal), internal / (external + internal)
