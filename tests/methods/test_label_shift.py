"""EM and BBSE on classes whose exact posterior is a linear head: normal distributions about known means."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.errors import InputError
from btfl.methods.heads import GlobalHead, probabilities
from btfl.methods.label_shift import Bbse, Em, LabelShift, confusion
from btfl.methods.registry import find_method
from btfl.runs.client import DeployedClient
from making import make_bundle

MEANS = np.array([[1.2, 0.0], [-0.6, 1.0], [-0.6, -1.0]])
SOURCE = np.array([0.5, 0.3, 0.2])
TARGET = np.array([0.1, 0.2, 0.7])
both = pytest.mark.parametrize("method", [Em, Bbse])


def sample(shares: NDArray[Any], count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=count, p=shares)
    return rng.normal(MEANS[labels], 1.0), labels


def client(validation_shares: NDArray[Any] = SOURCE, validation: int = 600) -> DeployedClient:
    """A client whose global head is calibrated to the bit for the shares in training."""
    head = LinearHead(MEANS, np.log(SOURCE) - (MEANS**2).sum(1) / 2)
    features, labels = sample(validation_shares, validation, 7)
    statistics = {
        "global_class_counts": 10_000 * SOURCE,
        "validation_features": features.astype(np.float32),
        "validation_labels": labels,
    }
    return DeployedClient(dataclasses.replace(make_bundle(2, 3), global_head=head, statistics=statistics))


def accuracy(adapter: GlobalHead | LabelShift, features: NDArray[Any], labels: NDArray[np.int64]) -> float:
    return float((adapter.predict(features).argmax(1) == labels).mean())


@both
def test_a_known_label_shift_is_recovered_and_corrected(method: type[LabelShift]) -> None:
    features, labels = sample(TARGET, 2000, 1)
    adapter = method(client(), window=2000)
    assert accuracy(adapter, features, labels) > accuracy(GlobalHead(client()), features, labels) + 0.05
    np.testing.assert_allclose(adapter.shares, TARGET, atol=0.06)
    assert adapter.shares.sum() == pytest.approx(1.0)


@both
def test_without_a_shift_the_shares_stay_those_of_training(method: type[LabelShift]) -> None:
    adapter = method(client())
    adapter.predict(sample(SOURCE, 500, 2)[0])
    np.testing.assert_allclose(adapter.shares, SOURCE, atol=0.08)


@both
def test_the_correction_is_the_exact_posterior_under_the_estimated_shares(method: type[LabelShift]) -> None:
    adapter = method(client())
    stream = sample(TARGET, 200, 9)[0]
    last = adapter.predict(stream)[-1]
    log_density = stream[-1] @ MEANS.T - (MEANS**2).sum(1) / 2  # up to what all classes share
    np.testing.assert_allclose(last, np.exp(log_softmax(log_density + np.log(adapter.shares))), rtol=1e-3)


@both
def test_a_few_samples_do_not_turn_its_head(method: type[LabelShift]) -> None:
    adapter = method(client())
    far = np.array([[-3.0, -6.0]])  # beyond doubt of class 2
    (answer,) = adapter.predict(far)
    assert answer.argmax() == 2
    np.testing.assert_allclose(adapter.shares, SOURCE, atol=0.1)
    for _ in range(200):
        adapter.predict(far)
    assert adapter.shares[2] > 0.9
    assert adapter.shares.min() > 0


@both
def test_the_window_lets_it_follow_a_stream_that_changes(method: type[LabelShift]) -> None:
    adapter = method(client(), window=300)
    adapter.predict(sample(np.array([0.8, 0.1, 0.1]), 600, 3)[0])
    adapter.predict(sample(TARGET, 300, 4)[0])
    only_the_last = method(client(), window=300)
    only_the_last.predict(sample(TARGET, 300, 4)[0])
    np.testing.assert_allclose(adapter.shares, only_the_last.shares, atol=1e-3)


@both
def test_a_stream_is_the_same_however_it_is_cut_and_reset_forgets_it(method: type[LabelShift]) -> None:
    adapter, stream = method(client(), window=40), sample(TARGET, 90, 5)[0]
    whole = adapter.predict(stream)
    adapter.reset()
    np.testing.assert_array_equal(adapter.shares, adapter.source)
    assert np.array_equal(np.concatenate([adapter.predict(part) for part in np.split(stream, [1, 33])]), whole)
    assert np.array_equal(method(client(), window=40).predict(stream), whole)
    np.testing.assert_allclose(whole.sum(1), 1.0)


def test_em_finds_the_likeliest_shares() -> None:
    stream = sample(TARGET, 60, 6)[0]
    adapter = Em(client(), prior=4.0)
    adapter.predict(stream)
    believed = probabilities(adapter.client.bundle.global_head, stream)

    def badness(free: NDArray[np.float64]) -> float:
        log_shares = log_softmax(free)
        likelihood = np.log((believed / adapter.source) @ np.exp(log_shares)).sum()
        return -float(likelihood + 4.0 * adapter.source @ log_shares)

    best = np.exp(log_softmax(minimize(badness, np.zeros(3)).x))
    np.testing.assert_allclose(adapter.shares, best, atol=1e-4)


def test_confusion_is_the_mean_prediction_for_each_class_where_there_are_samples() -> None:
    believed = np.array([[0.8, 0.1, 0.1], [0.6, 0.4, 0.0], [0.2, 0.7, 0.1]])
    # Classes 0 and 1 as they were seen; class 2, never seen, as recognised like the others: (0.8 + 0.6 + 0.7) / 3.
    expected = np.array([[0.7, 0.2, 0.15], [0.25, 0.7, 0.15], [0.05, 0.1, 0.7]])
    np.testing.assert_allclose(confusion(believed, np.array([0, 0, 1]), prior=1e-9), expected, atol=1e-6)
    np.testing.assert_allclose(confusion(believed, np.array([0, 0, 1]), prior=5.0).sum(0), 1.0)


@pytest.mark.parametrize("validation", [0, 40])
def test_bbse_copes_with_classes_the_client_has_never_seen(validation: int) -> None:
    one_sided = client(np.array([1.0, 0.0, 0.0]), validation)
    features, labels = sample(TARGET, 1000, 8)
    adapter = Bbse(one_sided, window=1000)
    assert accuracy(adapter, features, labels) > accuracy(GlobalHead(one_sided), features, labels)
    assert adapter.shares.argmax() == 2


@pytest.mark.parametrize("setting", ["window=0", "prior=0", "prior=none"])
@pytest.mark.parametrize("name", ["em", "bbse"])
def test_settings_out_of_range_are_named(name: str, setting: str) -> None:
    with pytest.raises(InputError, match=f"{name.upper()}: {setting.split('=')[0]}"):
        find_method(f"{name}[{setting}]").build(client())
