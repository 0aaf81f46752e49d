"""kNN-Per: the global model, mixed with the labels of near training features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.errors import BtflError
from btfl.methods.heads import probabilities
from btfl.methods.knn_per import KnnPer, nearest_labels
from btfl.methods.registry import find_method
from btfl.runs.client import DeployedClient

TRAIN = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [6.0, 5.0]])
LABELS = np.array([0, 0, 1, 1])
WEIGHT = np.array([[0.5, 0.5], [0.0, 0.0]])  # the further out, the surer of class 0: wrong about the second corner


def client(validation: NDArray[Any], labels: NDArray[Any]) -> DeployedClient:
    likelihood = DiscretisedLikelihood(np.full(2, 0.5), 2)
    statistics = {
        "train_features": TRAIN,
        "train_labels": LABELS,
        "validation_features": np.asarray(validation, dtype=np.float64).reshape(-1, 2),
        "validation_labels": np.asarray(labels, dtype=np.int64),
    }
    return DeployedClient(ClientBundle(WEIGHT, WEIGHT, likelihood, likelihood, 0.5, 0.5, statistics))


def test_a_worked_example() -> None:
    # From 1 the three nearest of 0, 2, 5, 9 are at distances 1, 1, 4, with labels 0, 1, 1.
    known, labels = np.array([[0.0], [2.0], [5.0], [9.0]]), np.array([0, 1, 1, 2])
    shares = nearest_labels(known, labels, 3, np.array([[1.0]]), k=3, scale=2.0)
    near, far = math.exp(-1 / 2), math.exp(-4 / 2)
    total = 2 * near + far
    np.testing.assert_allclose(shares, [[near / total, (near + far) / total, 0.0]])


def test_it_finds_the_neighbours_a_plain_loop_finds() -> None:
    rng = np.random.default_rng(2)
    known, labels, queries = rng.random((400, 6)), rng.integers(5, size=400), rng.random((300, 6))
    found = nearest_labels(known, labels, 5, queries, k=10, scale=0.3)
    for row, query in enumerate(queries):
        distances = np.sqrt(((known - query) ** 2).sum(axis=1))
        expected = np.zeros(5)
        for i in np.argsort(distances)[:10]:
            expected[labels[i]] += math.exp(-distances[i] / 0.3)
        np.testing.assert_allclose(found[row], expected / expected.sum(), atol=1e-9)


def test_with_fewer_samples_than_neighbours_all_are_asked_and_far_away_nothing_underflows() -> None:
    shares = nearest_labels(TRAIN, LABELS, 2, np.array([[1e6, 1e6]]), k=10, scale=1e-3)
    np.testing.assert_allclose(shares, [[0.0, 1.0]], atol=1e-9)


def test_at_mix_0_it_is_the_model_itself() -> None:
    method = KnnPer(client(TRAIN, LABELS), mix=0.0)
    queries = np.random.default_rng(0).random((50, 2)) * 6
    np.testing.assert_array_equal(method.predict(queries), probabilities(method.client.bundle.global_head, queries))


def test_in_between_it_lies_between_the_model_and_its_neighbours() -> None:
    own, queries = client(TRAIN, LABELS), np.array([[5.5, 5.0], [0.2, 0.0]])
    model, neighbours = KnnPer(own, mix=0.0).predict(queries), KnnPer(own, mix=1.0).predict(queries)
    np.testing.assert_allclose(KnnPer(own, mix=0.3).predict(queries), 0.3 * neighbours + 0.7 * model)


def test_the_mix_is_what_the_validation_part_says() -> None:
    # In the second corner the model says class 0 with a share of about 0.99, and the neighbours class 1.
    corner = np.array([[5.0, 5.0], [6.0, 5.0]])
    model_is_right = KnnPer(client(corner, np.array([0, 0])), k=2)
    memory_is_right = KnnPer(client(corner, np.array([1, 1])), k=2)
    assert model_is_right.mix == 0.0
    assert memory_is_right.mix == 0.5  # the least of the mixes, all from 0.5 on, that get both right
    assert (model_is_right.predict(corner).argmax(1) == 0).all()
    assert (memory_is_right.predict(corner).argmax(1) == 1).all()


def test_of_equally_good_mixes_the_least_is_taken_and_without_validation_there_is_none() -> None:
    # Near the origin model and memory both say class 0.
    assert KnnPer(client(np.array([[0.5, 0.1]]), np.array([0])), k=2).mix == 0.0
    assert KnnPer(client(np.array([[0.5, 0.1]]), np.array([1])), k=2).mix == 0.0
    assert KnnPer(client(np.empty((0, 2)), np.empty(0))).mix == 0.0


def test_the_stream_does_not_change_the_mix() -> None:
    method = KnnPer(client(np.array([[5.0, 5.0]]), np.array([1])), k=2)
    before = method.mix
    method.predict(np.random.default_rng(0).random((64, 2)))
    method.reset()
    assert method.mix == before


@pytest.mark.parametrize("wrong", ["k=0", "k=1.5", "scale=0", "mix=1.1"])
def test_a_setting_out_of_range_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(BtflError, match=wrong.partition("=")[0]):
        find_method(f"knn-per[{wrong}]").build(client(TRAIN, LABELS))
