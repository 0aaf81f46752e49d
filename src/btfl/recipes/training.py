"""The training loop itself, shared by all recipes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain

import numpy as np
import torch
from torch import nn

from btfl.core.client import Weights
from btfl.data.federated import ClientData
from btfl.data.source import Samples
from btfl.models import Network, build, to_arrays, torch_draws
from btfl.randomness import generator
from btfl.recipes.base import Recipe
from btfl.recipes.batches import shuffled_batches
from btfl.recipes.hardware import check_hardware, current_device, equip
from btfl.recipes.settings import Precision, TrainingSettings

log = logging.getLogger(__name__)

_LARGEST = 1e4  # of a weight: a few layers of such weights are beyond what float32 can hold

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(features, logits, labels) -> mean loss over the batch."""


def plain_loss(settings: TrainingSettings) -> Loss:
    """Cross-entropy, with the published program's pull of the features towards zero if it is asked for."""

    def loss(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        value = nn.functional.cross_entropy(logits, labels)
        if settings.feature_l1:
            value = value + settings.feature_l1 * features.abs().sum() / len(features)
        return value

    return loss


@lru_cache(maxsize=4)
def _workbench(
    model: str,
    options: str,
    sample_shape: tuple[int, ...],
    classes: int,
    precision: Precision,
    compiled: bool,
    device: str,
) -> Network:
    network: Network = build(model, sample_shape, classes, 0, **json.loads(options))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if (precision, compiled, device) != ("fp32", False, "cpu"):
        equip(network.extractor, precision, compiled, device)
    return network


def workbench(recipe: Recipe) -> Network:
    """Return a network of the recipe's shape to load weights into: one a process, its content is the caller's."""
    settings = recipe.settings
    check_hardware(settings)
    options = json.dumps(dict(settings.model_options), sort_keys=True)
    shape, classes = recipe.sample_shape, recipe.classes
    return _workbench(settings.model, options, shape, classes, settings.precision, settings.compile, current_device())


def first_network(recipe: Recipe) -> Network:
    """Return a network with the recipe's initial weights, a function of the seed."""
    settings = recipe.settings
    return build(settings.model, recipe.sample_shape, recipe.classes, settings.seed, **settings.model_options)


def make_optimiser(settings: TrainingSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return a fresh optimiser; momentum and moments start again in every round, as clients come and go."""
    if settings.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def train_network(
    network: Network,
    data: Samples,
    epochs: int,
    settings: TrainingSettings,
    loss: Loss,
    *purpose: str | int,
    only: nn.Module | None = None,
) -> dict[str, float]:
    """Train all of the network, or ``only`` a part of it; give the mean loss and accuracy of the last epoch.

    ``purpose`` (what, round, client) is what the shuffling, the augmentation and any dropout are drawn for.
    """
    network.train()
    optimiser = make_optimiser(settings, (only or network).parameters())
    rng = generator(settings.seed, *purpose)
    total, right = 0.0, 0
    with torch_draws(settings.seed, "dropout", *purpose):
        for _ in range(epochs):
            total, right = 0.0, 0
            for images, labels in shuffled_batches(data, settings.batch, rng, settings.augment):
                optimiser.zero_grad(set_to_none=True)
                features = network.features(images)
                logits = network.head(features)
                value = loss(features, logits, labels)
                value.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += float(value.detach()) * len(labels)
                right += int((logits.detach().argmax(1) == labels).sum())
    return {"loss": total / len(data), "accuracy": right / len(data)}


def trained_copy(
    network: Network, data: ClientData, epochs: int, settings: TrainingSettings, loss: Loss, *purpose: str | int
) -> Weights:
    """Train all of a network that is the client's own, and return its weights; those before if it diverges."""
    before = to_arrays(network)
    train_network(network, data.train, epochs, settings, loss, *purpose)
    after = to_arrays(network)
    trained = [after[name] for name, _ in network.named_parameters()]  # counts of batches may be as large as they like
    finite = all(np.isfinite(values).all() for values in after.values())
    if finite and all(np.abs(values).max(initial=0.0) < _LARGEST for values in trained):
        return after
    log.warning(
        "client %d: training of its own model diverged, so it keeps the one before; a lower learning rate would help",
        data.client,
    )
    return before


def train_head(
    head: nn.Linear,
    network: Network,
    data: Samples,
    epochs: int,
    settings: TrainingSettings,
    *purpose: str | int,
    onto: nn.Linear | None = None,
) -> None:
    """Train a head alone, on the features of a frozen extractor.

    ``onto``: its logits are added to those of this frozen head.
    """
    rng = generator(settings.seed, *purpose)
    for_epochs = (shuffled_batches(data, settings.batch, rng, settings.augment) for _ in range(epochs))
    fit_head(head, network, chain.from_iterable(for_epochs), settings, onto)


def fit_head(
    head: nn.Linear,
    network: Network,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    settings: TrainingSettings,
    onto: nn.Linear | None = None,
) -> None:
    """Train a head on batches of images and what it is to say of them, a step each; the extractor is frozen."""
    network.eval()
    optimiser = make_optimiser(settings, head.parameters())
    for images, targets in batches:
        with torch.no_grad():
            features = network.features(images)
            base = None if onto is None else onto(features)
        optimiser.zero_grad(set_to_none=True)
        logits = head(features) if base is None else base + head(features)
        nn.functional.cross_entropy(logits, targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
