"""Sums of real features always pass the check, whatever the features; sums that fit no features never do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import Btfl, DiscretisedLikelihood, Summary
from btfl.core.generative import class_scores, shares
from btfl.core.likelihood import THRESHOLD
from btfl.core.summary import ClassSums
from btfl.errors import InputError
from making import make_bundle

CLASSES, DIMENSIONS = 4, 6
SIGNED = ("signed", "negative", "always on", "one on", "one off")
Arrays = dict[str, np.ndarray]


def features_of(seed: int, samples: int, scales: list[float], kind: str, one_class: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(0.3, 1.0, (samples, len(scales)))
    if kind == "negative":
        drawn = -np.abs(drawn)
    elif kind == "always on":
        drawn = 0.55 + np.abs(drawn)
    elif kind == "one on":
        drawn = -np.abs(drawn)
        drawn[0] = 3.0
    elif kind == "one off":
        drawn = 0.55 + np.abs(drawn)
        drawn[-1] *= -1.0
    elif kind != "signed":
        drawn = np.maximum(drawn, 0.0)
    if kind == "constant":
        drawn[:] = drawn[0]
    elif kind == "dead":
        drawn[:, ::2] = 0.0
    elif kind == "dependent":
        drawn[:, 1:] = drawn[:, :1]
    labels = np.zeros(samples, int) if one_class else rng.integers(CLASSES, size=samples)
    return (drawn * np.array(scales)).astype(np.float32), labels


@settings(max_examples=500)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 3, 10, 200]),
    st.lists(st.sampled_from([0.0, 1e-44, 1e-30, 1e-3, 1.0, 1e3, 1e18, 1e37]), min_size=1, max_size=12),
    st.sampled_from(["any", "constant", "dead", "dependent", *SIGNED]),
    st.booleans(),
)
def test_the_sums_of_honest_clients_pass(
    seed: int, samples: int, scales: list[float], kind: str, one_class: bool
) -> None:
    features, labels = features_of(seed, samples, scales, kind, one_class)
    with np.errstate(over="ignore"):
        copies = np.clip(features * np.float32(1.7), -np.float32(3e38), np.float32(3e38))
    for distorted in (None, copies):
        summary = Summary.of(features, labels, CLASSES, distorted=distorted)
        summary.check(CLASSES, len(scales), nonnegative=kind not in SIGNED)


@pytest.mark.parametrize("kind", ["any", *SIGNED])
def test_the_sums_of_many_samples_pass(kind: str) -> None:
    features, labels = features_of(1, 100_000, [1.0] * 8, kind, False)
    Summary.of(features, labels, CLASSES).check(CLASSES, 8)


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["round", "off", "on"]))
def test_features_at_the_threshold_pass(seed: int, samples: int, side: str) -> None:
    """Where the bounds are met exactly, rounding must not refuse what is honest."""
    rng = np.random.default_rng(seed)
    step = {"round": rng.integers(-1, 2, (samples, 3)), "off": np.zeros((samples, 3)), "on": np.ones((samples, 3))}
    features = THRESHOLD + step[side] * 1e-16 * rng.integers(0, 3)
    Summary.of(features, rng.integers(CLASSES, size=samples), CLASSES).check(CLASSES, 3)


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 12))
def test_no_features_with_these_bits_and_this_sum_have_smaller_squares(seed: int, on: int, off: int) -> None:
    """The bound that a server checks is the least there is: samples that attain it pass, a little less is refused."""
    rng = np.random.default_rng(seed)
    mean = THRESHOLD + rng.choice([-1.0, 1.0]) * rng.uniform(0.1, 3.0)
    if off == 0:
        mean = abs(mean) + THRESHOLD
    total, t = mean * (on + off), THRESHOLD * (1 + 1e-15)
    high, low = (t, (total - on * t) / max(off, 1)) if mean < t else ((total - off * THRESHOLD) / on, THRESHOLD)
    features = np.array([high] * on + [low] * off)[:, None]
    arrays = Summary.of(features, np.zeros(on + off, int), 2).to_arrays()
    assert arrays["zero_frequencies"][0] == pytest.approx(off / (on + off))
    Summary(arrays).check(2, 1)
    with pytest.raises(InputError, match=r"do not fit|larger than|semidefinite"):
        Summary({**arrays, "feature_scatter": arrays["feature_scatter"] * (1 - 1e-9)}).check(2, 1)


def honest() -> Arrays:
    features, labels = features_of(0, 40, [0.5] * DIMENSIONS, "any", False)
    summary = Summary.of(features, labels, CLASSES, distorted=features + 1)
    return {name: array.copy() for name, array in summary.arrays.items()}


def skewed(arrays: Arrays) -> None:
    arrays["feature_scatter"][0, 1] *= 1.01


def indefinite(arrays: Arrays) -> None:
    scatter = arrays["feature_scatter"]
    scatter[0, 1] = scatter[1, 0] = 1.5 * np.sqrt(scatter[0, 0] * scatter[1, 1])


def scaled(name: str, factor: float) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = arrays[name] * factor

    return change


def fraction(arrays: Arrays) -> None:
    arrays["zero_frequencies"][0] = 0.5 + 0.3 / 40


def always_on(arrays: Arrays) -> None:
    arrays["zero_frequencies"][:] = 0.0


def never_on(arrays: Arrays) -> None:
    arrays["zero_frequencies"][:] = 1.0
    arrays["feature_scatter"] *= 1e4
    arrays["class_feature_sums"] *= 20


def always_on_but_small(arrays: Arrays) -> None:
    arrays["zero_frequencies"][:] = 0.0
    arrays["feature_scatter"] *= 1e4


def half_on_and_far_below(arrays: Arrays) -> None:
    arrays["zero_frequencies"][:] = 0.5
    arrays["class_feature_sums"] = -np.sqrt(40 * 100.0) * np.outer(arrays["class_counts"] / 40, np.ones(DIMENSIONS))
    arrays["feature_scatter"] = np.full((DIMENSIONS, DIMENSIONS), 100.0)


def negative_squares(arrays: Arrays) -> None:
    arrays["feature_scatter"] *= -1


def as_type(dtype: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays["zero_frequencies"] = np.zeros(DIMENSIONS, dtype)

    return change


def swapped(arrays: Arrays) -> None:
    arrays["class_feature_sums"] = 3 * arrays["class_feature_sums"][::-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (skewed, "not symmetric"),
        (indefinite, "not positive semidefinite"),
        (scaled("feature_scatter", 0.0), "zero in one is not in the other"),
        (scaled("feature_scatter", 1e-3), "larger than feature_scatter"),
        (scaled("class_feature_sums", 1000.0), "larger than feature_scatter"),
        (scaled("distorted_feature_scatter", 0.1), "larger than distorted_feature_scatter"),
        (swapped, "larger than|semidefinite"),
        (fraction, "multiples of 1/40"),
        (always_on, "on more often than it can be"),
        (never_on, "never on is too large"),
        (always_on_but_small, "always on is too small"),
        (half_on_and_far_below, "of this sum have larger squares"),
        (negative_squares, "feature_scatter must not be negative"),
        (scaled("feature_scatter", 1e200), "out of range"),
        *((as_type(dtype), "floating-point") for dtype in (str, complex, "datetime64[s]", "V8", np.longdouble, object)),
        (as_type(">f8"), "floating-point"),
    ],
)
def test_sums_that_fit_no_samples_are_refused(change: Callable[[Arrays], None], message: str) -> None:
    arrays = honest()
    change(arrays)
    with pytest.raises(InputError, match=message):
        Summary(arrays).check(CLASSES, DIMENSIONS)


@pytest.mark.parametrize(("name", "value"), [("clients", 0.0), ("clients", -1e9), ("samples", 0.0), ("samples", -3.0)])
def test_noise_does_not_excuse_a_client_that_is_no_client(name: str, value: float) -> None:
    with pytest.raises(InputError, match="speaks for itself alone"):
        Summary({**honest(), name: np.array([value])}).check(CLASSES, DIMENSIONS, exact=False)


@pytest.mark.parametrize("count", [1, 2**40, 10**15, 2**53])
@pytest.mark.parametrize("smoothing", ["add-one", "squeeze"])
def test_a_feature_that_is_off_for_everyone_has_a_finite_likelihood(count: int, smoothing: Any) -> None:
    likelihood = DiscretisedLikelihood(np.array([1.0, 0.0, 0.5]), count)
    for sample in (np.zeros((1, 3)), np.ones((1, 3))):
        assert np.isfinite(likelihood.log_likelihood(sample, smoothing)).all()


@pytest.mark.parametrize("count", [0, -1, 10**17, 10**400])
def test_a_count_that_no_data_has_is_refused(count: int) -> None:
    with pytest.raises(InputError, match="at least one sample"):
        DiscretisedLikelihood(np.ones(3), count)


HOSTILE = {
    "counts of 1e17": lambda n, s, c: (n * 1e17, s * 1e-17, c * 1e-17),
    "counts of 1e308": lambda n, s, c: (n * 0 + 1e308, s, c),
    "sums of 1e300": lambda n, s, c: (n, s * 1e300, c),
    "scatter of 1e308": lambda n, s, c: (n, s, c * 0 + 1e308),
    "scatter of zero": lambda n, s, c: (n, s, c * 0),
    "all zero but the counts": lambda n, s, c: (n, s * 0, c * 0),
    "no samples": lambda n, s, c: (n * 0, s * 0, c * 0),
    "a class nobody has": lambda n, s, c: (n * (np.arange(len(n)) > 0), s * (np.arange(len(n)) > 0)[:, None], c),
    "negative definite": lambda n, s, c: (n, s, -c),
    "tiny": lambda n, s, c: (n, s * 1e-300, c * 1e-300),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
def test_class_scores_are_finite_or_refused(kind: str, shrinkage: float) -> None:
    of = ClassSums(*HOSTILE[kind](*Summary(honest()).class_sums()))
    try:
        head = class_scores(of, shrinkage)
    except InputError:
        return
    assert head.bias is not None
    assert np.isfinite(head.weight).all()
    assert np.isfinite(head.bias).all()
    assert np.isfinite(shares(of.counts)).all()


def test_shares_are_finite_or_refused() -> None:
    assert np.isfinite(shares(np.zeros(3))).all()
    assert np.isfinite(shares(np.array([1e17, 0.0, 1.0]))).all()
    with pytest.raises(InputError, match="too large to add up"):
        shares(np.full(3, 1e308))


def test_predictions_stay_finite_under_counts_of_1e15_and_a_dead_feature() -> None:
    bundle = make_bundle()
    likelihood = DiscretisedLikelihood(np.ones(bundle.dimensions), 10**15, 2)
    object.__setattr__(bundle, "global_likelihood", likelihood)
    probabilities = Btfl(bundle).predict(np.ones((5, bundle.dimensions)))
    assert np.isfinite(probabilities).all()
