"""ATP's rounds: FedAvg's, and then rates that grow where following the entropy lowers the loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from btfl.benchmark.run import train_recipe
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.experiments.experiment import make_experiment
from btfl.methods.tent import mean_entropy
from btfl.models.inputs import to_tensor
from btfl.recipes.atp import RATES, Atp
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from small import digits

SHAPE = (8, 8, 1)
SETTINGS = TrainingSettings.for_model("mlp", rounds=2, local_epochs=1, adaptation_rounds=2)


def test_the_model_is_fedavgs_and_its_rates_are_learned_after_it() -> None:
    trained = train_federation(Atp(SETTINGS, SHAPE, 10), digits(), LocalEngine())
    plain = train_federation(FedAvg(SETTINGS, SHAPE, 10), digits(), LocalEngine())
    for name, array in plain.shared.items():
        np.testing.assert_array_equal(trained.shared[name], array)
    assert np.abs(trained.shared[RATES]).max() > 0
    np.testing.assert_array_equal(
        trained.client(0).bundle.personal_head.weight, plain.client(0).bundle.personal_head.weight
    )


def test_one_change_of_the_rates_by_hand() -> None:
    """From rates of zero, on a single batch: a_i = 0.1 <gradient of the loss, gradient of the entropy> / sqrt(n_i)."""
    recipe, own = Atp(SETTINGS, SHAPE, 10), digits().of(0, 3)
    rows = slice(0, 20)
    some = type(own.validation)(own.validation.values[rows], own.validation.labels[rows])
    data = type(own)(own.client, own.train, some)
    network = recipe.received(recipe.initial())
    parameters = list(network.parameters())
    images, labels = to_tensor(own.validation.values[rows]), torch.from_numpy(own.validation.labels[rows])
    entropy = torch.autograd.grad(mean_entropy(network(images)), parameters)
    loss = torch.autograd.grad(nn.functional.cross_entropy(network(images), labels), parameters)
    wanted = [0.1 * float((a * b).sum()) / a.numel() ** 0.5 for a, b in zip(loss, entropy, strict=True)]
    found, _ = recipe.learn(network, [0.0] * len(parameters), 3, data)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-9)


def test_the_model_is_not_touched_while_rates_are_learned() -> None:
    recipe, own = Atp(SETTINGS, SHAPE, 10), digits().of(1, 3)
    shared = recipe.initial()
    update = recipe.train(3, shared, {"own": np.ones(1, np.float32)}, own)
    for name, array in shared.items():
        if name != RATES:
            np.testing.assert_array_equal(update.upload[name], array)
    assert np.abs(update.upload[RATES]).max() > 0
    assert list(update.private) == ["own"]


@pytest.mark.parametrize("rounds", [0, 3])
def test_in_a_benchmark_fedavgs_rounds_are_trained_once(rounds: int, tmp_path: Path) -> None:
    training = {"rounds": 1, "local_epochs": 1, "adaptation_rounds": rounds}
    experiment = make_experiment(
        {"dataset": "digits", "model": "mlp", "clients": 4, "shift": "none", "training": training}
    )
    seen: list[tuple[str, str, int]] = []
    trained = train_recipe(
        "atp",
        experiment,
        digits(),
        LocalEngine(),
        tmp_path,
        watch=lambda recipe, event: seen.append((recipe, event.stage, event.round)),
    )
    assert {(name, round_) for name, stage, round_ in seen if stage == "train"} == {
        ("fedavg", 1),
        *(("atp", 2 + number) for number in range(rounds)),
    }
    assert trained.spec["settings"]["rounds"] == 1
