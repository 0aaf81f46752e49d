"""e is right: against the spec's values, high-precision arithmetic, and what must hold for every Beta and tau."""

from __future__ import annotations

import math
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta as beta_distribution

from btfl import expected_weight
from btfl.core.expectation import weight_and_complement, weight_of_one
from btfl.errors import InputError
from btfl.methods.btfl.trapezoid import expected_weight_by_trapezoid

parameters = st.floats(1.0, 300.0)
log_taus = st.floats(-13.8, 13.8)  # 1e-6 to 1e6

SPEC = [
    (1, 1, 1, 0.5),
    (2, 1, 1, 2 / 3),
    (1, 1, 0.5, 0.61370563888),
    (1, 1, 2, 0.38629436112),
    (3, 5, 0.7, 0.451441038765),
    (1.5, 1.5, 4, 0.259259259259),
    (9, 2, 0.05, 0.987759344835),
    (2, 14, 20, 0.00759785978814),
    (1, 1, 1e-6, 0.999987184463),
    (1, 1, 1e6, 1.2815537189e-5),
]


def high_precision(a: float, b: float, tau: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return e and 1 - e by quadrature in 40 digits over the bulk and both tails of the Beta, in log odds."""
    with mpmath.workdps(40):
        a_, b_, tau_ = mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(tau)
        log_norm = mpmath.log(mpmath.beta(a_, b_))

        def side(share: bool) -> mpmath.mpf:
            def integrand(t: mpmath.mpf) -> mpmath.mpf:
                odds = mpmath.exp(t)
                weight = odds / (odds + tau_) if share else tau_ / (odds + tau_)
                return weight * mpmath.exp(a_ * t - (a_ + b_) * mpmath.log1p(odds) - log_norm)

            # a long trapezoid sum: geometrically convergent for this integrand, and nothing like the code's own nodes
            spread = mpmath.sqrt(1 / a_ + 1 / b_)
            centre = mpmath.log(a_ / b_)
            step = mpmath.mpf(min(float(spread) / 6, 0.15))
            total = integrand(centre)
            for sign in (1, -1):
                k = 1
                while True:
                    term = integrand(centre + sign * k * step)
                    total += term
                    if term < total * mpmath.mpf(10) ** -25 and k * step > 3 * spread:
                        break
                    k += 1
            return total * step

        return side(True), side(False)


@pytest.mark.parametrize(("a", "b", "tau", "e"), SPEC)
def test_the_values_of_the_spec(a: float, b: float, tau: float, e: float) -> None:
    digits = 1e-10 if e > 1e-3 else 1e-14
    assert expected_weight(a, b, tau) == pytest.approx(e, abs=digits)


def test_absolute_error_for_large_parameters_and_extreme_ratios() -> None:
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(0, math.log(1e4), (2, 60)))
    tau = 10 ** rng.uniform(-12, 12, 60)
    corners = np.array([(a, b, t) for a in (1, 1e4) for b in (1, 1e4) for t in (1e-12, 1e-3, 0.999, 1e3, 1e12)])
    cases = np.concatenate([np.stack([a, b, tau], 1), corners])
    exact = np.array([float(high_precision(*case)[0]) for case in cases])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = expected_weight(*cases.T)
    assert np.abs(found - exact).max() < 1e-10


def _by_two_sums(a: float, b: float, log_tau: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """e and 1 - e as a ratio of two trapezoid sums in 60 digits."""
    with mpmath.workdps(60):
        a_, b_, tau = mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(log_tau)
        peak, width = mpmath.log(a_ / b_), mpmath.sqrt((a_ + b_) / a_ / b_)
        left, right, nodes = -13 * width - 140 / a_, 13 * width + 140 / b_, 1200

        def log_density(t: mpmath.mpf) -> mpmath.mpf:
            return -a_ * mpmath.log1p(mpmath.exp(-t)) - b_ * mpmath.log1p(mpmath.exp(t))

        external = internal = mpmath.mpf(0)
        for i in range(nodes + 1):
            t = peak + left + (right - left) * i / nodes
            density = mpmath.exp(log_density(t) - log_density(peak))
            external += density / (1 + mpmath.exp(tau - t))
            internal += density / (1 + mpmath.exp(t - tau))
        return external / (external + internal), internal / (external + internal)


def test_parameters_up_to_a_million_million() -> None:
    rng = np.random.default_rng(0)
    cases = [(25_876_475.0, 2_454_896.0, 2.3229), (1e12, 1e12, 0.5), (0.5, 1e12, -20.0), (1e12, 0.5, 20.0)]
    cases += [(10 ** rng.uniform(4, 12), 10 ** rng.uniform(-0.3, 12), rng.uniform(-40, 40)) for _ in range(5)]
    cases += [(b, a, -log_tau) for a, b, log_tau in cases]
    for a, b, log_tau in cases:
        tau = math.exp(log_tau)
        e, rest = _by_two_sums(a, b, math.log(tau))
        assert expected_weight(a, b, tau) == pytest.approx(float(e), rel=1e-12)
        assert expected_weight(a, b, tau, complement=True) == pytest.approx(float(rest), rel=1e-12)
    with pytest.raises(InputError, match="1e\\+12"):
        expected_weight(1e13, 1.0, 1.0)


def test_relative_error_of_the_smaller_side() -> None:
    rng = np.random.default_rng(1)
    a, b = np.exp(rng.uniform(0, math.log(300), (2, 80)))
    whole = rng.random(80) < 0.5  # whole numbers are a special case of the series
    a[whole], b[whole] = np.round(a[whole]), np.round(b[whole])
    tau = 10 ** rng.uniform(-6, 6, 80)
    for case in zip(a, b, tau, strict=True):
        e, rest = high_precision(*case)
        smaller = expected_weight(*case, complement=bool(rest < e))
        assert smaller == pytest.approx(float(min(e, rest)), rel=1e-8)


@pytest.mark.parametrize("offset", [1e-3, 1e-6, 1e-9, 1e-12])
def test_parameters_next_to_whole_numbers(offset: float) -> None:
    # the textbook continuation of 2F1 towards argument 1 cancels catastrophically here
    for a, b, tau in ((2 + offset, 3, 1e-3), (2, 3 + offset, 1e3), (5 - offset, 1 + offset, 1e5)):
        e, rest = high_precision(a, b, tau)
        assert expected_weight(a, b, tau) == pytest.approx(float(e), rel=1e-9)
        assert expected_weight(a, b, tau, complement=True) == pytest.approx(float(rest), rel=1e-9)


@given(parameters, parameters, log_taus)
def test_a_weight_lies_between_nought_and_one(a: float, b: float, log_tau: float) -> None:
    assert 0 < expected_weight(a, b, math.exp(log_tau)) < 1


@given(parameters, parameters, log_taus, st.floats(0.01, 3.0))
def test_it_falls_with_tau_and_b_and_rises_with_a(a: float, b: float, log_tau: float, step: float) -> None:
    tau = math.exp(log_tau)
    e, slack = expected_weight(a, b, tau), 1e-12
    assert expected_weight(a, b, tau * math.exp(step)) < e + slack
    assert expected_weight(a, b + step, tau) < e + slack
    assert expected_weight(a + step, b, tau) > e - slack


@given(parameters, parameters, log_taus)
def test_both_sides_add_up_to_one(a: float, b: float, log_tau: float) -> None:
    tau = math.exp(log_tau)
    assert expected_weight(a, b, tau) + expected_weight(b, a, 1 / tau) == pytest.approx(1, abs=1e-11)
    assert expected_weight(a, b, tau, complement=True) == pytest.approx(expected_weight(b, a, 1 / tau), rel=1e-9)


@given(parameters, parameters)
def test_a_sample_that_says_nothing_leaves_the_prior_mean(a: float, b: float) -> None:
    assert expected_weight(a, b, 1.0) == pytest.approx(a / (a + b), rel=1e-12)


@given(st.floats(1.0, 30.0), st.floats(1.0, 30.0), st.floats(-4.0, 4.0))
def test_the_density_of_m_hat_integrates_to_one_and_has_mean_e(a: float, b: float, log_tau: float) -> None:
    tau = math.exp(log_tau)

    def density(m_hat: float) -> float:  # the paper's change of variables
        bottom = 1 + m_hat * tau - m_hat
        return float(beta_distribution.pdf(m_hat * tau / bottom, a, b)) * tau / bottom**2

    peak = a / (a + b * tau)  # near where the mass is
    assert quad(density, 0, 1, points=[peak], limit=200)[0] == pytest.approx(1, abs=1e-7)
    mean = quad(lambda m: m * density(m), 0, 1, points=[peak], limit=200)[0]
    assert expected_weight(a, b, tau) == pytest.approx(mean, abs=1e-7)


def test_limits_scalars_and_broadcasting() -> None:
    assert expected_weight(3, 2, 0.0) == 1.0
    assert expected_weight(3, 2, math.inf) == 0.0
    assert isinstance(expected_weight(1, 1, 2.0), float)
    assert expected_weight([[1.0], [2.0]], 1.0, [0.5, 1.0, 2.0]).shape == (2, 3)
    assert expected_weight(np.ones(0), 1.0, 1.0).shape == (0,)


@pytest.mark.parametrize(
    ("a", "b", "tau"), [(0, 1, 1), (1, -1, 1), (math.nan, 1, 1), (1, math.inf, 1), (1, 1, -1), (1, 1, math.nan)]
)
def test_what_is_no_beta_or_ratio_is_refused(a: float, b: float, tau: float) -> None:
    with pytest.raises(InputError):
        expected_weight(a, b, tau)


@given(st.floats(1.0, 20.0), st.floats(1.0, 20.0), st.floats(-2.0, 2.0))
def test_the_published_trapezoid_is_the_published_one(a: float, b: float, log_tau: float) -> None:
    tau, m = math.exp(log_tau), np.linspace(0.01, 0.99, 100)
    published = np.trapezoid(beta_distribution(a, b).pdf(m) * m / (m + (1 - m) * tau), m)
    found = expected_weight_by_trapezoid(np.array(a), np.array(b), np.array(tau))
    assert float(found) == pytest.approx(float(published), rel=1e-9)


def test_the_published_trapezoid_loses_what_lies_beyond_its_grid() -> None:
    rough = float(expected_weight_by_trapezoid(np.array(4.0), np.array(1.0), np.array(1.0)))
    assert expected_weight(4, 1, 1) - rough == pytest.approx(0.039, abs=1e-3)


def test_a_plateau_between_peak_and_ratio_is_no_reason_for_nan() -> None:
    """b just above 1 and a large ratio: the integrand hardly falls for a long way, where Newton's step led too far."""
    a, b, log_tau = 2.4942563968900595, 1.0320114766383282, 166.7787889781386
    assert weight_of_one(a, b, log_tau) == pytest.approx(2.87292856e-71, rel=1e-3)
    rng = np.random.default_rng(0)
    many = 1 + rng.exponential(2, 20_000), 1 + rng.exponential(0.1, 20_000), rng.uniform(-600, 600, 20_000)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        e, rest = weight_and_complement(*many)
    assert ((e >= 0) & (e <= 1) & (rest >= 0) & (rest <= 1)).all()
    alone = [weight_of_one(*case) for case in zip(*(side[:500].tolist() for side in many), strict=True)]
    assert alone == e[:500].tolist()
