"""Small federations on the digits, trained once a process, and clients with weights of their own making."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.sources.digits import load
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.models import Network, build, to_arrays
from btfl.pixels.types import Images
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings
from btfl.runs.client import DeployedClient
from btfl.runs.trained import TrainedFederation
from making import make_bundle


@cache
def digits() -> FederatedData:
    source = load(shift="none")
    return FederatedData(source, make_partition(source, PartitionSettings(clients=4, alpha=0.3), seed=1))


@cache
def train_small(recipe: str, model: str = "mlp", rounds: int = 2, local_epochs: int = 2) -> TrainedFederation:
    settings = TrainingSettings.for_model(model, rounds=rounds, local_epochs=local_epochs, augment=False)
    return train_federation(make_recipe(recipe, settings, (8, 8, 1), 10), digits(), LocalEngine())


def images_of(client: int, count: int = 24) -> Images:
    """Some images of a client's test part."""
    data = digits()
    return data.source.pool.values[data.partition.part_at(client, 0).test[:count]]


def untrained(model: str, image_shape: tuple[int, ...] = (32, 32, 3), **options: Any) -> DeployedClient:
    """A client whose networks have only just been initialised."""
    weights = to_arrays(build(model, image_shape, 10, 3, **options))
    spec = {"name": model, "options": options, "image_shape": image_shape, "classes": 10}
    return DeployedClient(make_bundle(64, 10), {"global": weights, "finetuned": weights}, spec)


def batch_normed(image_shape: tuple[int, int, int], classes: int) -> Network:
    """A model of a user's own, with BatchNorm: named ``small:batch_normed``."""
    return Network(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()), 64, classes)


def frozen() -> nn.Module:
    """A backbone of a user's own for the 8x8 digits, with signed features: named ``small:frozen``."""
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(6 * 36, 24))
