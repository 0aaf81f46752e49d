"""pFedFDA's head: a discriminant by hand, and clients whose own classes do or do not lie where everyone's do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.core.heads import probabilities
from btfl.core.softmax import log_softmax
from btfl.methods.heads import GlobalHead
from btfl.methods.pfedfda import (
    Gaussians,
    PFedFdaHead,
    PFedFdaSettings,
    between,
    choose_weights,
    discriminant,
    own_gaussians,
    own_shares,
    two_folds,
)
from gaussians import World, accuracy

PAPER, RELEASE = PFedFdaSettings(), PFedFdaSettings(release=True)
EVERYONE = Gaussians(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.diag([2.0, 6.0]))


def test_a_discriminant_by_hand() -> None:
    # tr/d = 4: S = diag((1 - 1e-4) 2 + 4e-4, (1 - 1e-4) 6 + 4e-4) = diag(2.0002, 5.9998).
    head = discriminant(EVERYONE, np.array([0.5, 0.25, 0.25]))
    assert head.bias is not None
    np.testing.assert_allclose(head.weight, [[0.0, 0.0], [4 / 2.0002, 0.0], [0.0, 4 / 5.9998]])
    np.testing.assert_allclose(head.bias, np.log([0.5, 0.25, 0.25]) - [0, 8 / 2.0002, 8 / 5.9998])


def test_own_estimates_by_hand() -> None:
    features, labels = np.array([[1.0, 0.0], [3.0, 2.0], [4.0, 4.0]]), np.array([0, 0, 1])
    own = own_gaussians(features, labels, EVERYONE, PAPER)
    np.testing.assert_allclose(own.means, [[2, 1], [4, 4], [0, 4]])  # nobody here has class 2: everyone's mean
    np.testing.assert_allclose(own.covariance, [[1 + 1e-4, 1], [1, 1 + 1e-4]])  # residuals +-(1, 1) over n - 1 = 2
    np.testing.assert_allclose(own_gaussians(features, labels, EVERYONE, RELEASE).covariance - 1e-4, [[2, 1], [1, 2]])
    few = own_gaussians(features, labels, EVERYONE, PAPER, fewest=2)
    np.testing.assert_allclose(few.means, [[2, 1], [4, 0], [0, 4]])
    np.testing.assert_allclose(own_shares(labels, 3), (np.array([2 / 3, 1 / 3, 0]) + 1e-4) / 1.0003)


def test_half_way_between_by_hand() -> None:
    own = Gaussians(np.full((3, 2), 2.0), np.eye(2))
    mixed = between(own, EVERYONE, np.array([0.5, 0.25]))
    np.testing.assert_allclose(mixed.means, [[1, 1], [3, 1], [1, 3]])
    np.testing.assert_allclose(mixed.covariance, np.diag([0.25 + 1.5, 0.25 + 4.5]))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 100))
def test_two_folds_are_stratified_and_leave_out_only_single_samples(labels: list[int], seed: int) -> None:
    array = np.array(labels, dtype=np.int64)
    counts = np.bincount(array, minlength=5)
    folds = two_folds(array, seed)
    if folds is None:
        assert counts.max(initial=0) < 2
        return
    halves = [np.bincount(array[rows], minlength=5) for rows in folds]
    assert np.abs(halves[0] - halves[1]).max() <= 1
    np.testing.assert_array_equal(halves[0] + halves[1], np.where(counts > 1, counts, 0))
    assert not set(folds[0]) & set(folds[1])


def test_scarce_data_stay_with_everyone_and_strange_plentiful_data_go_their_own_way() -> None:
    world = World(means=np.eye(3, 12) * 3)
    everyone = Gaussians(world.means, np.eye(12))
    scarce = choose_weights(*world.sample([0.4, 0.3, 0.3], 18, 1), everyone, PAPER)
    strange = choose_weights(*world.sample([0.4, 0.3, 0.3], 600, 2, shift=4.0), everyone, PAPER)
    assert scarce[0] < 0.3
    assert strange[0] > 0.9
    np.testing.assert_array_equal(choose_weights(world.means[:1], np.zeros(1, np.int64), everyone, PAPER), [0, 0])


def test_the_chosen_weights_are_better_than_either_end() -> None:
    world = World(means=np.eye(3, 8) * 2)
    features, labels = world.sample([0.5, 0.3, 0.2], 120, 3, shift=1.0)
    everyone = Gaussians(world.means, np.eye(8))
    chosen = choose_weights(features, labels, everyone, PAPER)
    folds = two_folds(labels, 0)
    assert folds is not None

    def loss(beta: np.ndarray) -> float:
        total = 0.0
        for fit, test in (folds, folds[::-1]):
            own = own_gaussians(features[fit], labels[fit], everyone, PAPER)
            head = discriminant(between(own, everyone, beta), own_shares(labels, 3))
            total -= log_softmax(head.logits(features[test]))[np.arange(len(test)), labels[test]].mean()
        return total

    assert loss(chosen) < min(loss(np.array(end)) for end in ([0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]))


@pytest.mark.parametrize("release", [False, True])
def test_on_fedavgs_features_a_client_that_lies_elsewhere_gains(release: bool) -> None:
    world = World(shift=2.5)
    bundle = world.bundle()
    features, labels = world.sample(world.own, 1500, 4, shift=2.5)
    method = PFedFdaHead(bundle, release=release)
    assert accuracy(method, features, labels) > accuracy(GlobalHead(bundle), features, labels) + 0.05
    exact = world.posterior(world.own)
    best = (probabilities(exact, features - [2.5, 0]).argmax(1) == labels).mean()
    assert accuracy(method, features, labels) > best - 0.05
