"""Heads are mixed in one product, the same to the bit for a sample alone and in any batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl.core.softmax import mixed, mixed_of_one, softmax_weights


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(2, 3), st.integers(1, 70))
def test_mixed_heads_are_their_weighted_sum_and_the_same_bits_alone(
    seed: int, samples: int, heads: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    weights, shares = np.exp(rng.normal(size=(samples, heads + 1, classes))), rng.random((samples, heads))
    answers = np.empty((samples, classes))
    assert np.shares_memory(mixed(shares, weights[:, :heads], answers), answers)
    np.testing.assert_allclose(answers, (shares[..., None] * weights[:, :heads]).sum(axis=1), rtol=1e-14)
    assert mixed(shares, weights[:, :heads]).tobytes() == answers.tobytes()
    for row, own, answer in zip(shares.tolist(), weights, answers, strict=True):
        assert mixed_of_one(row, own[:heads]).tobytes() == answer.tobytes()


@pytest.mark.parametrize("large", [False, True])
def test_logits_are_lowered_only_where_they_are_large(large: bool) -> None:
    logits = np.array([[700.0, 710.0, 0.0]]) if large else np.array([[1.0, 2.0, 3.0]])
    before = logits.copy()
    weights, lowered = softmax_weights(logits, large)
    assert np.isfinite(weights).all()
    np.testing.assert_array_equal(weights, np.exp(logits))
    if large:
        assert lowered is not None
        np.testing.assert_array_equal(logits + lowered, before)
        assert logits.max() == 0.0
    else:
        assert lowered is None
        np.testing.assert_array_equal(logits, before)
