"""FTH and FLH-FTL: three steps by hand, and streams whose class shares are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from btfl.core.heads import probabilities
from btfl.methods.heads import GlobalHead
from btfl.methods.label_shift import Bbse
from btfl.methods.online_label_shift import FlhFtl, Fth, OnlineShares
from gaussians import World, accuracy

WORLD = World()
BUNDLE = WORLD.bundle()
every = pytest.mark.parametrize("method", [Fth, FlhFtl])
Q1, Q2, Q3 = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]), np.array([0.5, 0.5, 0.0])


def test_three_steps_of_fth_by_hand() -> None:
    method = Fth(BUNDLE)
    np.testing.assert_allclose(method.follow(Q1), [1, 0, 0])
    np.testing.assert_allclose(method.follow(Q2), [1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(method.follow(Q3), [1 / 2, 1 / 2, 0])


def test_three_steps_of_flh_ftl_by_hand() -> None:
    method = FlhFtl(BUNDLE, rate=0.5)
    np.testing.assert_allclose(method.follow(Q1), [1, 0, 0])  # the only expert
    # It erred by 2, but nobody is better: 1/2, and 1/2 for the newcomer. They say (1/2, 1/2) and (0, 1).
    np.testing.assert_allclose(method.follow(Q2), [1 / 4, 3 / 4, 0])
    # The first was right, the second erred by 1/2: 2/3 of the weight as 1 to exp(-1/4), 1/3 for the newcomer. They say
    # (1/2, 1/2), the mean of all; (1/4, 3/4), that of the last two; and (1/2, 1/2).
    first, second = (2 / 3 / (1 + np.exp(-0.25)) * np.array([1.0, np.exp(-0.25)])).tolist()
    zero = first / 2 + second / 4 + 1 / 6
    np.testing.assert_allclose(method.follow(Q3), [zero, 1 - zero, 0])


def test_three_steps_of_the_program_by_hand() -> None:
    method = FlhFtl(BUNDLE, rate=0.5, experts="window")
    np.testing.assert_allclose(method.follow(Q1), [1, 0, 0])
    np.testing.assert_allclose(method.follow(Q2), [1 / 4, 3 / 4, 0])
    # Now the window of 1, which said (0, 1), is judged, and that of 2 is not; afterwards they say (1/2, 1/2) and
    # (1/4, 3/4), and the newcomer, the window of 3, says (1/2, 1/2).
    one, two = (2 / 3 / (1 + np.exp(-0.25)) * np.array([np.exp(-0.25), 1.0])).tolist()
    zero = one / 2 + two / 4 + 1 / 6
    np.testing.assert_allclose(method.follow(Q3), [zero, 1 - zero, 0])


@every
def test_a_step_is_answered_with_what_was_known_before_it(method: type[OnlineShares]) -> None:
    features, _ = WORLD.sample([0.0, 0.0, 1.0], 20, 5)
    answers = method(BUNDLE, step=10).predict(features)

    np.testing.assert_allclose(answers[:10], probabilities(BUNDLE.global_head, features)[:10])
    assert answers[10:, 2].mean() > probabilities(BUNDLE.global_head, features)[10:, 2].mean() + 0.1


@every
def test_shares_that_stay_are_found_and_correcting_helps(method: type[OnlineShares]) -> None:
    shares = np.array([0.05, 0.15, 0.8])
    features, labels = WORLD.sample(shares, 2000, 6)
    tested = method(BUNDLE)
    assert accuracy(tested, features, labels) > accuracy(GlobalHead(BUNDLE), features, labels) + 0.05
    np.testing.assert_allclose(tested.shares, shares, atol=0.08)


@every
def test_its_estimate_is_bbses_when_there_is_enough_to_see(method: type[OnlineShares]) -> None:
    features, _ = WORLD.sample([0.2, 0.2, 0.6], 1000, 7)
    tested, bbse = method(BUNDLE, step=1000), Bbse(BUNDLE, window=1000)
    tested.predict(features), bbse.predict(features)
    np.testing.assert_allclose(tested.shares, bbse.shares, atol=0.01)


def test_flh_ftl_follows_a_change_that_the_mean_of_all_history_does_not() -> None:
    before, _ = WORLD.sample([0.9, 0.05, 0.05], 1500, 8)
    after, labels = WORLD.sample([0.02, 0.03, 0.95], 300, 9)
    found = {}
    for method in (Fth, FlhFtl):
        tested = method(BUNDLE, step=50)
        tested.predict(before)
        found[method] = accuracy(tested, after, labels), tested.shares[2]
    assert found[FlhFtl][0] > found[Fth][0] + 0.05
    assert found[FlhFtl][1] > 2 * found[Fth][1]


@every
@pytest.mark.parametrize("cut", [[1, 33], [10], [7, 8, 9]])
def test_a_stream_is_the_same_however_it_is_cut(method: Any, cut: list[int]) -> None:
    stream, _ = WORLD.sample([0.1, 0.1, 0.8], 60, 10)
    whole, parts = method(BUNDLE), method(BUNDLE)
    np.testing.assert_array_equal(
        np.concatenate([parts.predict(part) for part in np.split(stream, cut)]), whole.predict(stream)
    )
