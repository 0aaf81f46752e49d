"""ADAPT: two samples by hand, and a stream whose classes have moved."""

from __future__ import annotations

import numpy as np
import pytest

from btfl import ClientBundle, Summary
from btfl.core.heads import LinearHead
from btfl.core.softmax import entropy, log_softmax
from btfl.errors import InputError
from btfl.methods.base import BundleOnly
from btfl.methods.gaussian_adaptation import Adapt
from btfl.methods.heads import GlobalHead
from btfl.methods.registry import find_method
from gaussians import World, accuracy


def on_a_line() -> ClientBundle:
    """Two classes about -1 and 1 on a line; the global head says (0.2, 0.8) of everything."""
    everyone = Summary.of(np.array([[-1.5], [-0.5], [0.0], [2.0]]), [0, 0, 1, 1], 2)
    return ClientBundle.of((np.zeros((2, 1)), np.log([0.2, 0.8])), np.array([[-1.0], [1.0]]), everyone, everyone)


def test_two_samples_by_hand() -> None:
    method = Adapt(on_a_line(), scale=2.0)
    np.testing.assert_allclose(method.first_means, [[-1.0], [1.0]])
    # The bank of class 1 is {3}: its mean is 0.9 * 3 + 0.1 * 1 = 2.8. One sample has no covariance, so S^-1 = 1:
    # g = (-1 * 3 - 1 / 2, 2.8 * 3 - 2.8^2 / 2) = (-3.5, 4.48). It points as itself: exp(0.8 / 2) for class 1.
    scores = log_softmax(np.array([-3.5, 4.48])) / 2
    wanted = np.array([0.2, 0.8]) * np.exp(scores) * [1, np.exp(0.4)]
    np.testing.assert_allclose(method.predict([[3.0]])[0], wanted / wanted.sum())
    # {3, 1}: mean 0.9 * 2 + 0.1 = 1.9, residuals 1.1 and -0.9 with variance 2, S^-1 = 1 / (1 * 2 + 2) = 1/4:
    # g = ((-1 - 1/2) / 4, (1.9 - 1.9^2 / 2) / 4), and both point the same way: exp((0.8 + 0.8) / 4).
    scores = log_softmax(np.array([-1.5, 1.9 - 1.805]) / 4) / 2
    wanted = np.array([0.2, 0.8]) * np.exp(scores) * [1, np.exp(0.4)]
    np.testing.assert_allclose(method.predict([[1.0]])[0], wanted / wanted.sum())
    np.testing.assert_allclose(method.means, [[-1.0], [1.9]])


WORLD = World(means=np.array([[4.0, 0.0], [-2.0, 3.5], [-2.0, -3.5]]))


def test_it_follows_classes_that_have_moved() -> None:
    bundle, (features, labels) = WORLD.bundle(), WORLD.sample([1 / 3] * 3, 600, 4, shift=3.0)
    method = Adapt(bundle, scale=1.0)
    before = accuracy(GlobalHead(bundle), features, labels)
    method.predict(features)  # fills the banks
    assert accuracy(method, features, labels) > before + 0.02
    moved = method.means - method.first_means
    assert (moved[:, 0] > 0.5).all()
    assert np.abs(moved[:, 1]).max() < 1.5


def test_without_alpha_the_means_stay() -> None:
    bundle, (features, _) = WORLD.bundle(), WORLD.sample([1 / 3] * 3, 60, 4, shift=3.0)
    method = Adapt(bundle, alpha=0.0)
    method.predict(features)
    np.testing.assert_allclose(method.means, method.first_means)


def test_a_bank_keeps_the_surest_of_each_predicted_class() -> None:
    bundle, (features, _) = WORLD.bundle(), WORLD.sample([1 / 3] * 3, 200, 5)
    method = Adapt(bundle, bank=4)
    method.predict(features)
    believed = log_softmax(bundle.global_head.logits(features))
    doubts, labels = entropy(believed), believed.argmax(1)
    for label in range(3):
        kept = np.array(method.state["doubts"])[np.array(method.state["labels"]) == label]
        np.testing.assert_allclose(np.sort(kept), np.sort(doubts[labels == label])[:4])


def test_the_base_is_one_of_the_two_heads() -> None:
    bundle = WORLD.bundle(personal_head=LinearHead(np.zeros((3, 2)), np.array([0.0, 0.0, 50.0])))
    features, _ = WORLD.sample([1 / 3] * 3, 30, 6)
    assert (find_method("adapt-personal").build(BundleOnly(bundle)).predict(features).argmax(1) == 2).all()
    assert len(set(Adapt(bundle).predict(features).argmax(1).tolist())) == 3


def test_more_samples_than_the_bank_holds_are_refused() -> None:
    bundle, (features, _) = WORLD.bundle(), WORLD.sample([1 / 3] * 3, 90, 5)
    many = Adapt(bundle, bank=9)
    many.predict(features)
    with pytest.raises(InputError, match="the setting bank"):
        Adapt(bundle, bank=2).restore(many.state)
