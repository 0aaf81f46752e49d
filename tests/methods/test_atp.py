"""ATP: a step by hand, batches that start again, and batches whose means are kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from btfl.errors import InputError
from btfl.methods.atp import Atp, adapt
from btfl.methods.tent import mean_entropy
from btfl.models import to_arrays
from btfl.models.forward import logits
from btfl.models.inputs import to_tensor
from btfl.runs.client import DeployedClient
from making import make_client, make_images

IMAGES = make_images(24)


def client(rates: object) -> DeployedClient:
    plain = make_client()
    weights = {**plain.networks["global"], "auxiliary.atp.rates": np.asarray(rates, np.float32)}
    return dataclasses.replace(plain, networks={**plain.networks, "global": weights})


def softmax(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(values) / np.exp(values).sum(axis=1, keepdims=True))


def test_a_step_by_hand() -> None:
    rates = [0.5, -0.25, 0.0, 1.0, 2.0]
    network = client(rates).network("global")
    before = to_arrays(network)
    mean_entropy(network(to_tensor(IMAGES))).backward()  # type: ignore[no-untyped-call]
    wanted = [
        before[name] - rate * parameter.grad.numpy()  # type: ignore[union-attr]
        for (name, parameter), rate in zip(network.named_parameters(), rates, strict=True)
    ]
    adapt(network, to_tensor(IMAGES), rates)
    for array, parameter in zip(wanted, network.parameters(), strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), array, atol=1e-6)
    answers = Atp(client(rates)).predict(IMAGES)
    np.testing.assert_allclose(answers, softmax(logits(network, IMAGES)), atol=1e-5)


def test_rates_of_zero_are_the_global_model_and_positive_ones_make_it_surer() -> None:
    plain = softmax(logits(make_client().network("global"), IMAGES))
    np.testing.assert_allclose(Atp(client(np.zeros(5))).predict(IMAGES), plain, atol=1e-6)

    def doubt(p: np.ndarray) -> float:
        return float(-(p * np.log(p)).sum(axis=1).mean())

    assert (
        doubt(Atp(client(np.full(5, 0.5))).predict(IMAGES))
        < doubt(plain)
        < doubt(Atp(client(np.full(5, -0.5))).predict(IMAGES))
    )


def test_each_batch_starts_from_the_global_model() -> None:
    method = Atp(client(np.full(5, 0.5)))
    first = method.predict(IMAGES[:8])
    method.predict(IMAGES[8:16])
    np.testing.assert_array_equal(method.predict(IMAGES[:8]), first)
    assert method.state == {}


def test_online_the_answer_is_that_of_the_mean_over_all_batches() -> None:
    batches = np.split(IMAGES, 3)
    method = Atp(client(np.full(5, 0.5)), memory="online")
    for batch in batches:
        answers = method.predict(batch)
    stepped = []
    for batch in batches:
        network = client(np.zeros(5)).network("global")
        adapt(network, to_tensor(batch), [0.5] * 5)
        stepped.append([parameter.detach().clone() for parameter in network.parameters()])
    with torch.no_grad():
        for parameter, *seen in zip(network.parameters(), *stepped, strict=True):
            parameter.copy_(torch.stack(seen).mean(0))
    np.testing.assert_allclose(answers, softmax(logits(network, batches[-1])), atol=1e-5)


def test_rates_that_do_not_fit_the_network_are_refused() -> None:
    with pytest.raises(InputError, match="3 rates do not fit a network of 5 tensors"):
        Atp(client(np.zeros(3)))
