"""A private total: how far one sample can move it, what noise it gets, and that it is a total again afterwards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, norm

from btfl.core.private import SCATTER, Parts, PrivateSums, add_parts, clip_features
from btfl.core.summary import Summary

CLASSES = 3


def draw(seed: int, count: int, width: int, scale: float = 5.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, width)) * scale, rng.normal(size=(count, width)) * scale, rng.integers(0, 3, count)


def parts(sums: PrivateSums, seed: int, count: int, width: int, copies: bool) -> Parts:
    plain, distorted, labels = draw(seed, count, width)
    plain, distorted = (clip_features(each, sums.radius) for each in (plain, distorted))
    return sums.parts(Summary.of(plain, labels, CLASSES, distorted=distorted if copies else None))


def distance(one: Parts, other: Parts) -> float:
    return math.sqrt(sum(float(((one[name] - other[name]) ** 2).sum()) for name in one))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 12),
    width=st.integers(1, 6),
    radius=st.floats(0.1, 20.0),
    copies=st.booleans(),
)
def test_one_sample_moves_the_total_by_at_most_the_sensitivity(
    seed: int, count: int, width: int, radius: float, copies: bool
) -> None:
    sums = PrivateSums(radius, 1.0)
    with_it, without = (parts(sums, seed, size, width, copies) for size in (count, count))
    plain, distorted, labels = draw(seed, count, width)
    plain, distorted = (clip_features(each, radius) for each in (plain, distorted))
    less = Summary.of(plain[1:], labels[1:], CLASSES, distorted=distorted[1:] if copies else None)
    without = sums.parts(less)
    assert sums.sensitivity(with_it) == pytest.approx(math.sqrt(6 if copies else 4))
    assert distance(with_it, without) <= sums.sensitivity(with_it) * (1 + 1e-9)


def test_the_sensitivity_is_reached() -> None:
    sums, feature = PrivateSums(2.0, 1.0), np.array([[1.2, 1.6]])  # of length 2, and both features on: none is off
    one = sums.parts(Summary.of(feature, [0], CLASSES, distorted=feature))
    none_off = distance(one, {name: np.zeros_like(array) for name, array in one.items()})
    assert none_off == pytest.approx(math.sqrt(5))
    off = sums.parts(Summary.of(-feature, [0], CLASSES, distorted=-feature))
    assert distance(off, {name: np.zeros_like(array) for name, array in off.items()}) == pytest.approx(math.sqrt(6))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 50), bound=st.floats(0.5, 30.0))
def test_one_client_moves_the_total_by_at_most_the_bound(seed: int, count: int, bound: float) -> None:
    sums = PrivateSums(3.0, 1.0, bound)
    found = parts(sums, seed, count, 4, copies=True)
    nothing = {name: np.zeros_like(array) for name, array in found.items()}
    assert distance(found, nothing) <= bound * (1 + 1e-9) == sums.sensitivity(found) * (1 + 1e-9)


def test_noise_has_the_deviation_that_was_planned() -> None:
    sums, rng = PrivateSums(2.0, 3.0), np.random.default_rng(0)
    total = parts(sums, 1, 20, 60, copies=False)
    noise = {name: array - total[name] for name, array in sums.noisy(total, rng).items()}
    planned = 3.0 * 2.0
    for name, array in noise.items():
        if name.endswith(SCATTER):
            np.testing.assert_allclose(array, array.T, atol=1e-9)
            above = array[np.triu_indices(60, 1)]
            assert above.std() == pytest.approx(planned / math.sqrt(2), rel=0.06)
            assert np.diagonal(array).std() == pytest.approx(planned, rel=0.4)
        elif array.size > 100:
            assert array.std() == pytest.approx(planned, rel=0.2)


def test_hardly_any_noise_leaves_the_total_as_it_is() -> None:
    features, copies, labels = draw(2, 400, 5, scale=0.5)
    features, copies = (clip_features(each, 100.0) for each in (features, copies))
    summary = Summary.of(features, labels, CLASSES, distorted=copies)
    sums = PrivateSums(100.0, 1e-12)
    found = sums.released(sums.noisy(sums.parts(summary), np.random.default_rng(0)), 1)
    for name, array in summary.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-5, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), multiplier=st.floats(0.1, 100.0), copies=st.booleans(), clients=st.integers(1, 5))
def test_whatever_the_noise_the_released_sums_fit_together(
    seed: int, multiplier: float, copies: bool, clients: int
) -> None:
    sums, total = PrivateSums(2.0, multiplier), dict[str, np.ndarray]()
    for client in range(clients):
        total = add_parts(total, parts(sums, seed + client, 8, 4, copies))
    found = sums.released(sums.noisy(total, np.random.default_rng(seed)), clients)
    assert found.clients == clients
    assert found.has_copies == copies
    likelihood = found.likelihood.frequencies
    assert ((likelihood >= 0) & (likelihood <= 1)).all()
    for kind in ("", "distorted_") if copies else ("",):
        counts, mass, scatter = found.class_sums(kind)
        assert (counts >= 1).all()
        assert np.linalg.eigvalsh(scatter - (mass.T / counts) @ mass).min() > 0


def test_the_best_attack_is_within_what_epsilon_allows() -> None:
    """Is a sample in the total or not? Nothing says more about it than the likelihood ratio of the noisy parts."""
    epsilon, delta, draws = 1.0, 1e-2, 20_000
    multiplier = 2.0
    while _delta(multiplier, epsilon) > delta:  # the least noise for this epsilon and delta
        multiplier += 0.001
    while _delta(multiplier, epsilon) <= delta:
        multiplier -= 0.001
    multiplier += 0.001
    sums, feature = PrivateSums(2.0, multiplier), np.array([[-1.2, -1.6]])
    others = Summary.of(np.array([[0.5, 0.2], [1.0, 0.3]]), [0, 1], CLASSES)
    without = sums.parts(others)
    with_it = add_parts(without, sums.parts(Summary.of(feature, [0], CLASSES)))
    assert distance(with_it, without) == pytest.approx(sums.sensitivity(without))  # the worst neighbour there is
    rng = np.random.default_rng(0)
    scores = np.array(
        [[_log_ratio(sums.noisy(one, rng), with_it, without) for one in (with_it, without)] for _ in range(draws)]
    )
    threshold = epsilon * (multiplier * sums.sensitivity(without)) ** 2
    hits, false_alarms = (scores > threshold).sum(axis=0).tolist()
    surely_hit = beta.ppf(1e-4, hits, draws - hits + 1)
    surely_false = beta.ppf(1 - 1e-4, false_alarms + 1, draws - false_alarms)
    assert surely_hit <= math.exp(epsilon) * surely_false + delta
    reached = hits / draws - math.exp(epsilon) * false_alarms / draws
    assert reached == pytest.approx(delta, abs=0.006)  # the guarantee is used up: the attack is the best one


def _delta(multiplier: float, epsilon: float) -> float:
    """Of the Gaussian mechanism, in closed form (Balle and Wang, 2018)."""
    half = 1 / (2 * multiplier)
    return float(norm.cdf(half - epsilon * multiplier) - math.exp(epsilon) * norm.cdf(-half - epsilon * multiplier))


def _log_ratio(seen: Parts, with_it: Parts, without: Parts) -> float:
    """The log likelihood ratio of what was seen, times the variance of the noise."""
    ratio = 0.0
    for name, array in seen.items():
        middle, step = (with_it[name] + without[name]) / 2, with_it[name] - without[name]
        ratio += float(((array - middle) * step).sum())
    return ratio
