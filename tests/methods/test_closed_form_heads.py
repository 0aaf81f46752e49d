"""FedCGS, GH-OFL's naive Bayes, Fed3R and CCVR: heads that follow from sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import ClientBundle, Summary
from btfl.core.generative import class_scores
from btfl.core.heads import LinearHead, probabilities
from btfl.core.sums import ClassSums
from btfl.methods.base import BundleOnly
from btfl.methods.ccvr import Ccvr, retrained, virtual_features
from btfl.methods.closed_form_heads import ClosedFormHead, without_correlations
from btfl.methods.heads import GlobalHead
from btfl.methods.registry import find_method
from gaussians import EVEN, World, accuracy

FOUR = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 0.0], [6.0, 4.0]])
"""Class 0 about (1, 2), class 1 about (5, 2)."""


def of_four(head: str) -> LinearHead:
    everyone = Summary.of(FOUR, [0, 0, 1, 1], 2)
    bundle = ClientBundle.of(np.zeros((2, 2)), np.zeros((2, 2)), everyone, everyone)
    return ClosedFormHead(bundle, head=head, shrinkage=0.0).head


def test_fedcgs_by_hand() -> None:
    # Residuals (-1, -1), (1, 1), (-1, -2), (1, 2): V = [[1, 3/2], [3/2, 5/2]], V^-1 = [[10, -6], [-6, 4]].
    # mu' V^-1 = (10 - 12, -6 + 8) = (-2, 2) and (50 - 12, -30 + 8) = (38, -22).
    head = of_four("lda")
    assert head.bias is not None
    np.testing.assert_allclose(head.weight, [[-2, 2], [38, -22]], rtol=1e-6)
    np.testing.assert_allclose(head.bias, [-(-2 + 4) / 2 + np.log(0.5), -(190 - 44) / 2 + np.log(0.5)], rtol=1e-6)


def test_naive_bayes_by_hand() -> None:
    # The diagonal alone: V^-1 = diag(1, 2/5).
    head = of_four("diagonal")
    assert head.bias is not None
    np.testing.assert_allclose(head.weight, [[1, 4 / 5], [5, 4 / 5]], rtol=1e-6)
    np.testing.assert_allclose(head.bias, [-(1 + 8 / 5) / 2 + np.log(0.5), -(25 + 8 / 5) / 2 + np.log(0.5)], rtol=1e-6)


def test_ridge_regression_by_hand() -> None:
    # S = [[56, 30], [30, 26]], s = (2, 4) and (10, 4): S^-1 s = (-68, 164) and (140, -76) over 556, at length 1.
    everyone = Summary.of(FOUR, [0, 0, 1, 1], 2)
    bundle = ClientBundle.of(np.zeros((2, 2)), np.zeros((2, 2)), everyone, everyone)
    head = ClosedFormHead(bundle, head="ridge", ridge=1e-9, temperature=1.0).head
    rows = np.array([[-68.0, 164.0], [140.0, -76.0]])
    np.testing.assert_allclose(head.weight, rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-6)


WORLD = World()
BUNDLE = WORLD.bundle(global_head=np.zeros((3, 2)))


@pytest.mark.parametrize("name", ["fedcgs", "gh-ofl-nb", "fed3r", "ccvr"])
def test_a_head_from_sums_is_nearly_as_good_as_the_exact_one(name: str) -> None:
    features, labels = WORLD.sample(EVEN, 3000, 5)
    exact = float((probabilities(WORLD.posterior(EVEN), features).argmax(1) == labels).mean())
    method = find_method(name).build(BundleOnly(BUNDLE))
    assert accuracy(method, features, labels) > exact - 0.06
    assert accuracy(GlobalHead(BUNDLE), features, labels) < 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_taking_the_correlations_out_leaves_means_and_variances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3)), rng.integers(4, size=40)
    sums = Summary.of(features, labels, 5).class_sums()
    plain = without_correlations(sums)

    def within(of: ClassSums) -> np.ndarray:
        means = of.sums / np.maximum(of.counts, 1)[:, None]
        return of.scatter - (means.T * of.counts) @ means

    np.testing.assert_allclose(within(plain), np.diag(np.diagonal(within(sums))), atol=1e-8)
    np.testing.assert_array_equal(plain.sums, sums.sums)


def test_virtual_features_have_the_sums_they_were_drawn_from() -> None:
    sums = Summary.of(*WORLD.sample([0.5, 0.3, 0.2], 900, 6), 4).class_sums()  # nobody has the fourth class
    features, labels = virtual_features(sums, 20_000, seed=1)
    assert np.bincount(labels, minlength=4).tolist() == [20_000, 20_000, 20_000, 0]
    means = sums.sums[:3] / sums.counts[:3, None]
    drawn = np.stack([features[labels == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(drawn, means, atol=0.05)
    within = (sums.scatter - (means.T * sums.counts[:3]) @ means) / sums.counts.sum()
    np.testing.assert_allclose(np.cov((features - drawn[labels]).T), within, atol=0.05)
    np.testing.assert_array_equal(features, virtual_features(sums, 20_000, seed=1)[0])
    assert not np.array_equal(features, virtual_features(sums, 20_000, seed=2)[0])


def test_training_again_tends_to_the_gaussians_own_head_with_equal_shares() -> None:
    sums = Summary.of(*WORLD.sample([0.6, 0.3, 0.1], 2000, 7), 3).class_sums()
    head = retrained(LinearHead(np.ones((3, 2))), *virtual_features(sums, 20_000, 0), steps=200)
    probes = WORLD.sample(EVEN, 50, 8)[0]
    np.testing.assert_allclose(probabilities(head, probes), probabilities(class_scores(sums, 0.0), probes), atol=0.03)


def test_a_head_that_leans_to_common_classes_is_calibrated() -> None:
    biased = LinearHead(WORLD.means, np.array([6.0, 0.0, 0.0]))
    bundle, (features, labels) = WORLD.bundle(global_head=biased), WORLD.sample(EVEN, 2000, 9)
    assert accuracy(Ccvr(bundle), features, labels) > accuracy(GlobalHead(bundle), features, labels) + 0.2
    one_step = Ccvr(bundle, steps=1)
    assert not np.allclose(one_step.head.weight, Ccvr(bundle).head.weight)


def test_clients_of_one_federation_share_the_calibrated_head_and_others_do_not() -> None:
    one, again = Ccvr(BUNDLE), Ccvr(WORLD.bundle(global_head=np.zeros((3, 2))))
    assert one.head is again.head
    other = Ccvr(World(samples=300).bundle(global_head=np.zeros((3, 2))))
    assert not np.allclose(other.head.weight, one.head.weight)
    assert not np.allclose(Ccvr(BUNDLE, seed=1).head.weight, one.head.weight)
