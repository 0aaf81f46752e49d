"""T3A against a worked example: two classes in the plane, the head's rows along the axes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from btfl.core.heads import LinearHead
from btfl.errors import InputError
from btfl.methods.heads import GlobalHead
from btfl.methods.registry import find_method
from btfl.methods.t3a import T3A
from btfl.runs.client import DeployedClient
from making import make_bundle, make_stream


def in_the_plane(scale: float = 1.0) -> DeployedClient:
    """Class 0 lies along x, class 1 along y."""
    bundle = make_bundle(2, 2)
    return DeployedClient(dataclasses.replace(bundle, global_head=LinearHead(scale * np.eye(2))))


def softmax(logits: list[float]) -> np.ndarray:
    return np.asarray(np.exp(logits) / np.exp(logits).sum())


def test_worked_example() -> None:
    adapter = T3A(in_the_plane())
    # The head takes (3, 4) for class 1: its prototype moves from (0, 1) to half-way between (0, 1) and (0.6, 0.8).
    (answer,) = adapter.predict(np.array([[3.0, 4.0]]))
    middle = np.array([0.6, 1.8]) / np.hypot(0.6, 1.8)
    np.testing.assert_allclose(answer, softmax([3.0, 3.0 * middle[0] + 4.0 * middle[1]]))
    # (4, 0) is class 0's, which lies there already; class 1's new prototype now claims a part of it.
    (answer,) = adapter.predict(np.array([[4.0, 0.0]]))
    np.testing.assert_allclose(answer, softmax([4.0, 4.0 * middle[0]]))
    # A third support: (1, 5), once more for class 1.
    (answer,) = adapter.predict(np.array([[1.0, 5.0]]))
    mean = np.array([0.0, 1.0]) + [0.6, 0.8] + np.array([1.0, 5.0]) / np.sqrt(26)
    prototype = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(answer, softmax([1.0, prototype[0] + 5.0 * prototype[1]]))


def test_with_one_support_only_the_surest_remains() -> None:
    adapter = T3A(in_the_plane(), supports=1)
    # The head is less sure of (0.1, 0.5) than of its own row (0, 1), and surer of (1, 9) than of either.
    np.testing.assert_allclose(adapter.predict(np.array([[0.1, 0.5]]))[0], softmax([0.1, 0.5]))
    direction = np.array([1.0, 9.0]) / np.sqrt(82)
    np.testing.assert_allclose(adapter.predict(np.array([[1.0, 9.0]]))[0], softmax([1.0, 82 / np.sqrt(82)]))
    np.testing.assert_allclose(adapter.predict(np.array([[2.0, 0.0]]))[0], softmax([2.0, 2.0 * direction[0]]))


def test_it_recovers_from_a_turn_of_the_features_that_the_head_does_not() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    angles = np.where(labels == 0, 0.0, np.pi / 2) + 0.55 + rng.normal(0, 0.25, 400)  # both classes turned the same way
    features = 6.0 * np.stack([np.cos(angles), np.sin(angles)], 1)
    client = in_the_plane()
    adapted, fixed = (method(client).predict(features).argmax(1) == labels for method in (T3A, GlobalHead))
    assert adapted[100:].mean() > fixed[100:].mean() + 0.05


def test_a_stream_is_the_same_however_it_is_cut_and_reset_forgets_it() -> None:
    bundle = make_bundle()
    adapter, stream = T3A(DeployedClient(bundle)), make_stream(bundle)
    whole = adapter.predict(stream)
    adapter.reset()
    assert np.array_equal(np.concatenate([adapter.predict(row[None]) for row in stream]), whole)
    assert not np.array_equal(adapter.predict(stream), whole)
    adapter.reset()
    assert np.array_equal(adapter.predict(stream), whole)
    np.testing.assert_allclose(whole.sum(1), 1.0)


def test_a_feature_of_zeros_does_no_harm() -> None:
    answers = T3A(in_the_plane()).predict(np.zeros((3, 2)))
    np.testing.assert_allclose(answers, 0.5)


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(InputError, match="supports must be a whole number of at least 1"):
        find_method("t3a[supports=0]").build(in_the_plane())
