"""FedTHE+: tunes to each sample, and gives everything back as it was."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.methods.fedthe import FedThe
from btfl.methods.fedthe_plus import FedThePlus
from btfl.models import build, to_arrays
from btfl.models.forward import extract
from btfl.runs.client import DeployedClient

SHAPE = (8, 8, 1)


@pytest.fixture(scope="module")
def client() -> DeployedClient:
    """A client with an untrained network, which is as good as any to be tuned."""
    network = build("mlp", SHAPE, 10, seed=3)
    features = extract(network, images(40, seed=1))
    likelihood = DiscretisedLikelihood.fit(features)
    rng = np.random.default_rng(0)
    heads = (to_arrays(network.head)["weight"] * 4, rng.normal(size=(10, 64)).astype(np.float32))
    statistics = {
        "train_features": features,
        "global_class_counts": np.full(10, 4.0),
        "global_class_feature_sums": rng.random((10, 64)),
    }
    weights = {**to_arrays(network), "head.weight": heads[0]}
    model = {"name": "mlp", "options": {}, "image_shape": SHAPE, "classes": 10}
    return DeployedClient(
        ClientBundle(*heads, likelihood, likelihood, 0.5, 0.5, statistics), {"global": weights}, model
    )


def images(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(256, size=(count, *SHAPE), dtype=np.uint8)


def weights_of(method: FedThePlus) -> list[NDArray[np.float32]]:
    return [*to_arrays(method.network).values(), *to_arrays(method.personal).values()]


def test_network_and_heads_come_back_as_they_were_after_every_batch(client: DeployedClient) -> None:
    method = FedThePlus(client, tuning_rate=0.05)
    before = weights_of(method)
    method.predict(images(3, seed=5))
    for now, then in zip(weights_of(method), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_reset_puts_a_tuned_network_back(client: DeployedClient) -> None:
    method = FedThePlus(client, tuning_rate=0.05)
    before = weights_of(method)
    method.tune(images(1, seed=5)[0], 0.5)
    moved = [np.abs(now - then).max() > 0 for now, then in zip(weights_of(method), before, strict=True)]
    assert all(moved)  # the extractor and both heads
    method.reset()
    for now, then in zip(weights_of(method), before, strict=True):
        np.testing.assert_array_equal(now, then)
    for name, array in to_arrays(client.network("global")).items():
        np.testing.assert_array_equal(array, client.networks["global"][name])


def test_without_steps_it_is_fedthe(client: DeployedClient) -> None:
    seen = images(20, seed=6)
    plain, plus = FedThe(client), FedThePlus(client, tuning_steps=0)
    expected = plain.predict(extract(client.extractor(), seen).astype(np.float64))
    np.testing.assert_allclose(plus.predict(seen), expected, atol=1e-5)
    np.testing.assert_allclose(plus.trace["e"], plain.trace["e"], atol=1e-9)


def test_the_steps_lower_the_entropy_of_the_mixed_answer(client: DeployedClient) -> None:
    method = FedThePlus(client, tuning_steps=10, tuning_rate=0.01)
    drops = []
    for image in images(5, seed=7):
        losses = method.tune(image, 0.5)
        drops.append(losses[0] - losses[-1])
        method.reset()
    assert np.mean(drops) > 0.05


def test_the_steps_change_the_answer_but_not_the_weights_of_the_heads(client: DeployedClient) -> None:
    seen = images(8, seed=8)
    plain, plus = FedThePlus(client, tuning_steps=0), FedThePlus(client, tuning_rate=0.01)
    assert np.abs(plain.predict(seen) - plus.predict(seen)).max() > 1e-4
    np.testing.assert_array_equal(plain.trace["e"], plus.trace["e"])


def test_a_stream_gives_the_same_answers_a_second_time_and_in_other_batches(client: DeployedClient) -> None:
    seen, method = images(6, seed=9), FedThePlus(client)
    first = method.predict(seen)
    method.reset()
    np.testing.assert_array_equal(method.predict(seen), first)
    method.reset()
    one_by_one = np.concatenate([method.predict(seen[i : i + 1]) for i in range(6)])
    np.testing.assert_allclose(one_by_one, first, atol=1e-4)
