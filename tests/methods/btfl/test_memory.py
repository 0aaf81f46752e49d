"""The memory of the stream: the Beta-Bernoulli update is Bayes' rule, and pruning keeps proportions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl import BtflSettings
from btfl.core.arithmetic import ARRAYS, SCALARS
from btfl.methods.btfl import memory
from btfl.methods.btfl.memory import EXD, IND, Beta

ROOMY = BtflSettings(prune_above=1e9)
parameters = st.floats(1.0, 8.0)
events = st.lists(st.sampled_from([IND, 0, EXD]), max_size=60)


def as_events(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int8)


@given(parameters, parameters, st.integers(0, 5), st.integers(0, 5))
def test_counting_is_bayes_rule(a: float, b: float, external: int, internal: int) -> None:
    m = np.linspace(1e-4, 1 - 1e-4, 4001)
    prior = m ** (a - 1) * (1 - m) ** (b - 1)
    posterior = prior * m**external * (1 - m) ** internal  # m is the probability of EXD
    posterior /= np.trapezoid(posterior, m)
    after = memory.count(Beta(a, b), external, internal, ROOMY)
    expected = m ** (after.a - 1) * (1 - m) ** (after.b - 1)
    expected /= np.trapezoid(expected, m)
    assert posterior == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.floats(1.0, 400.0), st.floats(1.0, 400.0), st.floats(2.0, 50.0), st.floats(0.0, 20.0))
def test_pruning_keeps_proportions_and_the_start(a: float, b: float, above: float, to: float) -> None:
    settings = BtflSettings(prune_above=max(above, to + 2), prune_to=to)
    pruned = memory.count(Beta(a, b), 0, 0, settings)
    if a + b <= settings.prune_above:
        assert pruned == (a, b)
        return
    assert pruned.a + pruned.b == pytest.approx(2 + to)
    assert (pruned.a - 1) * b == pytest.approx((pruned.b - 1) * a, abs=1e-9)


def test_the_papers_algorithm_with_the_values_taken_at_once() -> None:
    # from (12, 5): a <- 1 + 12/17 and b <- 1 + 5/17, not b <- 1 + 5/(1.7 + 5)
    assert memory.count(Beta(12, 5), 0, 0, BtflSettings()) == (1 + 12 / 17, 1 + 5 / 17)
    assert memory.count(Beta(12, 4), 0, 0, BtflSettings()) == (12, 4)  # 16 is not above 16


@given(events, st.sampled_from(["before", "after"]))
def test_sample_by_sample_is_the_plain_loop(values: list[int], count: str) -> None:
    settings = BtflSettings(count=count)  # type: ignore[arg-type]
    prior, expected = Beta(), []
    for event in values:
        after = memory.count(prior, int(event == EXD), int(event == IND), settings)
        expected.append(after if count == "before" else prior)
        prior = after
    a, b, final = memory.take(Beta(), as_events(values), settings)
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == [tuple(pair) for pair in expected]
    assert final == prior
    alone = Beta()
    for event, pair in zip(values, expected, strict=True):  # a sample alone is judged the same
        *judged, alone = memory.take(alone, event, settings)
        assert tuple(judged) == tuple(pair)


@given(events, st.integers(0, 60))
def test_cutting_the_stream_changes_nothing(values: list[int], cut: int) -> None:
    settings = BtflSettings()
    whole = memory.take(Beta(), as_events(values), settings)
    first = memory.take(Beta(), as_events(values[:cut]), settings)
    second = memory.take(first[2], as_events(values[cut:]), settings)
    assert whole[0].tolist() == [*first[0], *second[0]]
    assert whole[1].tolist() == [*first[1], *second[1]]
    assert whole[2] == second[2]


@given(events)
def test_the_memory_stays_bounded(values: list[int]) -> None:
    a, b, _ = memory.take(Beta(), as_events(values * 5), BtflSettings())
    if len(a):
        assert (a + b).max() <= 16
        assert min(a.min(), b.min()) >= 1


def test_external_events_raise_a_and_internal_ones_b() -> None:
    assert memory.take(Beta(), as_events([EXD, EXD, IND]), ROOMY)[2] == (3, 2)


def test_events_need_all_three_signs_and_ties_are_none() -> None:
    log_tau, local, global_ = (
        grid.ravel() for grid in np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
    )
    found = memory.detect(ARRAYS, log_tau, local, global_, BtflSettings())
    for tau, own, everyone, event in zip(log_tau.tolist(), local.tolist(), global_.tolist(), found, strict=True):
        expected = {(1.0, -1.0, 1.0): IND, (-1.0, 1.0, -1.0): EXD}.get((tau, own, everyone), 0)
        assert event == expected
        assert memory.detect(SCALARS, tau, own, everyone, BtflSettings()) == expected


def test_without_history_the_prior_stays_flat() -> None:
    a, b, final = memory.take(Beta(), as_events([EXD] * 5), BtflSettings(use_history=False))
    assert (a == 1).all()
    assert (b == 1).all()
    assert final == (1, 1)
