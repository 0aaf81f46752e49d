"""Clients to time methods on: what an image costs depends on its size and the model, not on what was learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.core.softmax import entropy, log_softmax
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.source import Samples, Source
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.pixels.types import Images
from btfl.randomness import generator
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings
from btfl.runs.client import DeployedClient

IMAGE_SHAPE, CLASSES = (32, 32, 3), 10  # as CIFAR-10


def synthetic_images(count: int, purpose: str) -> Images:
    """Return (count, 32, 32, 3) images of noise on a few large spots: the same for the same count and purpose."""
    rng = generator(0, "made-up images", purpose)  # the words are part of the seed, and stay as they are
    spots = rng.integers(40, 200, (count, 4, 4, 3)).repeat(8, axis=1).repeat(8, axis=2)
    return np.clip(spots + rng.normal(0, 20, spots.shape), 0, 255).astype(np.uint8)


def synthetic_clients(model: str, recipes: Sequence[str]) -> dict[str, DeployedClient]:
    """Return, for each recipe, a client of a federation of three that was trained for a round on synthetic images."""
    images = synthetic_images(160, "training")
    labels = np.arange(len(images)) % CLASSES
    source = Source("synthetic", tuple(map(str, range(CLASSES))), Samples(images, labels))
    data = FederatedData(source, make_partition(source, PartitionSettings(clients=3, kind="equal"), seed=0))
    settings = TrainingSettings.for_model(model, rounds=1, local_epochs=1)
    clients = {}
    for name in recipes:
        recipe = make_recipe(name, settings, IMAGE_SHAPE, CLASSES)
        client = train_federation(recipe, data, LocalEngine()).client(0)
        clients[name] = replace(client, bundle=_with_sure_heads(client.bundle))
    return clients


def _with_sure_heads(bundle: ClientBundle) -> ClientBundle:
    """Return two heads that differ as trained ones do: what a method does may depend on how far they disagree."""
    features = np.asarray(bundle.statistics["train_features"], dtype=np.float64)
    rng = generator(0, "made-up heads")
    heads, entropies = [], []
    for _ in range(2):
        weight = rng.normal(size=(CLASSES, bundle.dimensions))
        # no logit is common to all samples, and their spread is that of a head that is often sure
        bias = -(features @ weight.T).mean(axis=0)
        scale = 3.0 / max(float((features @ weight.T + bias).std()), 1e-6)
        heads.append(LinearHead(weight * scale, bias * scale))
        entropies.append(float(entropy(log_softmax(heads[-1].logits(features))).mean()))
    return ClientBundle(
        global_head=heads[0],
        personal_head=heads[1],
        local_likelihood=bundle.local_likelihood,
        global_likelihood=bundle.global_likelihood,
        local_entropy=entropies[1],
        global_entropy=entropies[0],
        statistics=bundle.statistics,
    )
