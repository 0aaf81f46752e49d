"""The discretised likelihood: what it counts, how it averages, and that nothing overflows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from btfl import DiscretisedLikelihood
from btfl.errors import BtflError, InputError, UnknownNameError

features = arrays(np.float64, st.tuples(st.integers(1, 20), st.just(6)), elements=st.floats(0, 5))


@given(features)
def test_quantising_is_rounding_tanh(values: np.ndarray) -> None:
    likelihood = DiscretisedLikelihood.fit(values)
    zeros = np.round(np.tanh(values)) == 0
    # at the threshold itself, tanh may round to either side of one half
    at_threshold = np.isclose(np.tanh(values), 0.5, rtol=0, atol=1e-15)
    low, high = (zeros & ~at_threshold).mean(0), (zeros | at_threshold).mean(0)
    assert ((likelihood.frequencies >= low) & (likelihood.frequencies <= high)).all()
    assert likelihood.count == len(values)


def test_the_threshold_itself_counts_as_zero() -> None:
    threshold = math.atanh(0.5)
    values = np.array([[threshold, np.nextafter(threshold, 1), 0.0]])
    assert DiscretisedLikelihood.fit(values).frequencies.tolist() == [1.0, 0.0, 1.0]


def test_a_worked_example() -> None:
    likelihood = DiscretisedLikelihood(np.array([0.5, 0.25]), count=4)
    p = (4 * np.array([0.5, 0.25]) + 1) / 6  # one more sample of each kind
    found = likelihood.log_likelihood([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    expected = [math.log(p[0] * p[1]), math.log((1 - p[0]) * p[1]), math.log((1 - p[0]) * (1 - p[1]))]
    assert found == pytest.approx(expected, abs=1e-14)


@given(st.lists(features, min_size=1, max_size=5))
def test_averaging_equals_pooling_for_equal_counts(batches: list[np.ndarray]) -> None:
    size = min(len(batch) for batch in batches)
    batches = [batch[:size] for batch in batches]
    average = DiscretisedLikelihood.average([DiscretisedLikelihood.fit(batch) for batch in batches])
    pooled = DiscretisedLikelihood.fit(np.concatenate(batches))
    assert average.frequencies == pytest.approx(pooled.frequencies, abs=1e-12)
    assert average.count == pooled.count
    assert average.clients == len(batches)


def test_the_average_counts_every_client_the_same() -> None:
    small = DiscretisedLikelihood(np.array([0.0]), count=1)
    large = DiscretisedLikelihood(np.array([1.0]), count=99)
    assert DiscretisedLikelihood.average([small, large]).frequencies == [0.5]


@given(st.lists(features, min_size=2, max_size=5))
def test_taking_oneself_out_leaves_the_others(batches: list[np.ndarray]) -> None:
    own, *others = map(DiscretisedLikelihood.fit, batches)
    rest = DiscretisedLikelihood.average([own, *others]).without(own)
    expected = DiscretisedLikelihood.average(others)
    assert rest.frequencies == pytest.approx(expected.frequencies, abs=1e-12)
    assert (rest.count, rest.clients) == (expected.count, expected.clients)


@pytest.mark.parametrize("smoothing", ["add-one", "squeeze"])
@pytest.mark.parametrize("frequency", [0.0, 1.0])
def test_log_space_never_overflows_at_4096_dimensions(smoothing: str, frequency: float) -> None:
    likelihood = DiscretisedLikelihood(np.full(4096, frequency), count=10**9)
    values = likelihood.log_likelihood([[0.0] * 4096, [9.0] * 4096], smoothing)  # type: ignore[arg-type]
    assert np.isfinite(values).all()
    assert values.min() < -745  # the product itself would be zero


@given(arrays(np.float64, 40, elements=st.floats(0, 1)), st.integers(1, 10**6), st.integers(0, 2**32 - 1))
def test_every_order_of_adding_gives_the_same_bits(p: np.ndarray, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, weights = DiscretisedLikelihood(p, count).log_odds()
    bits = (rng.random((8, 40)) < 0.5).astype(float)
    order = rng.permutation(40)
    reference = [sum(row[weights != 0] * weights[weights != 0]) for row in bits]
    assert (bits @ weights).tolist() == (bits[:, order] @ weights[order]).tolist() == reference


@given(arrays(np.float64, 40, elements=st.floats(0, 1)), st.integers(1, 10**6))
def test_the_matrix_form_is_the_sum_of_logarithms(p: np.ndarray, count: int) -> None:
    likelihood = DiscretisedLikelihood(p, count)
    bits = np.eye(40)[:5] * 9
    smooth = likelihood.smoothed()
    direct = np.where(bits > 0, np.log1p(-smooth), np.log(smooth)).sum(axis=1)
    assert likelihood.log_likelihood(bits) == pytest.approx(direct, rel=1e-12, abs=1e-12)


def test_wrong_input_is_refused_in_a_sentence() -> None:
    fit = DiscretisedLikelihood.fit
    for bad, words in (
        (np.zeros((0, 3)), "no sample"),
        (np.zeros(3), "matrix"),
        ([[math.nan, 1.0]], "NaN"),
        ([["a", "b"]], "numbers"),
        ([[1e200, 1e200]], "too large"),
    ):
        with pytest.raises(InputError, match=words):
            fit(bad)
    with pytest.raises(InputError, match="between 0 and 1"):
        DiscretisedLikelihood(np.array([1.1]), 3)
    with pytest.raises(InputError, match="at least one sample"):
        DiscretisedLikelihood(np.array([0.1]), 0)
    with pytest.raises(InputError, match="nothing to average"):
        DiscretisedLikelihood.average([])
    with pytest.raises(InputError, match="different feature sizes"):
        DiscretisedLikelihood.average([fit([[0.0]]), fit([[0.0, 1.0]])])
    with pytest.raises(InputError, match="expected"):
        fit([[0.0]]).log_likelihood([[0.0, 1.0]])
    with pytest.raises(BtflError, match="no other clients"):
        fit([[0.0]]).without(fit([[0.0]]))
    with pytest.raises(UnknownNameError, match="add-one"):
        fit([[0.0]]).smoothed("add-two")  # type: ignore[arg-type]
