"""e on a grid is the expectation, for every memory that the settings allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl import expected_weight
from btfl.methods.btfl.weight import LONGEST_MEMORY, ExpectedWeight, Grid

LAMBDAS = (3.0, 5.0, 8.0, 16.0, 40.0, LONGEST_MEMORY, 10 * LONGEST_MEMORY)


@st.composite
def memories(draw: st.DrawFn) -> tuple[float, float, float]:
    """Lambda, and an a and b of a memory pruned above it."""
    prune_above = draw(st.sampled_from(LAMBDAS))
    events = draw(st.floats(0.0, prune_above - 2.0))
    external = draw(st.floats(0.0, 1.0))
    return prune_above, 1.0 + external * events, 1.0 + (1.0 - external) * events


@given(memory=memories(), log_tau=st.floats(-30.0, 30.0))
def test_it_is_the_expectation(memory: tuple[float, float, float], log_tau: float) -> None:
    prune_above, a, b = memory
    found = ExpectedWeight(prune_above)(a, b, log_tau)
    assert found == pytest.approx(expected_weight(a, b, float(np.exp(log_tau))), abs=3e-12)
    assert 0.0 <= found <= 1.0


@given(memory=memories(), log_tau=st.floats(-30.0, 30.0))
def test_half_the_points_have_the_digits_of_single_precision(
    memory: tuple[float, float, float], log_tau: float
) -> None:
    prune_above, a, b = memory
    fine, coarse = Grid(prune_above), Grid(prune_above, single=True)
    density = coarse.density(a, b)
    found = float(coarse.external(density, np.exp(log_tau)).sum() / density.sum())
    assert found == pytest.approx(expected_weight(a, b, float(np.exp(log_tau))), abs=3e-7 * max(1.0, prune_above / 100))
    assert len(coarse.t) < 0.6 * len(fine.t)


@given(
    st.sampled_from(LAMBDAS),
    st.lists(st.tuples(st.floats(1.0, 2.0), st.floats(1.0, 2.0), st.floats(-30.0, 30.0)), min_size=1, max_size=300),
)
def test_a_sample_alone_gets_the_bits_of_a_batch(prune_above: float, samples: list[tuple[float, float, float]]) -> None:
    expectation = ExpectedWeight(prune_above)
    one_by_one = [expectation(*sample) for sample in samples]
    np.testing.assert_array_equal(expectation(*np.array(samples).T), one_by_one)


def test_a_kept_density_is_that_of_the_memory() -> None:
    expectation = ExpectedWeight(16.0)
    memories = [(1.0, 1.0), (1.0, 2.0), (1.0, 1.0), (2.0, 1.0), (2.0, 1.0)]
    found = [expectation(a, b, 0.0) for a, b in memories]
    assert found == pytest.approx([a / (a + b) for a, b in memories], abs=1e-14)
