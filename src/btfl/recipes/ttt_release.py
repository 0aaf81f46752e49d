"""TTT's training as in FedTHE's program, and BTFL's after it: the federation is FedAvg's, rotations are learnt at home.

There the rotation head never leaves the client. It is trained while the client personalises, an epoch in each round,
together with a copy of the network that is thrown away after the round; so the network that is averaged is FedAvg's.
Here the head gets its epochs at the end, on the final extractor held still, and the last one with the network as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.data.source import Samples
from btfl.models import to_arrays
from btfl.models.rotations import TURNS, check_square, new_rotation_head, rotated
from btfl.randomness import generator
from btfl.recipes.batches import shuffled_batches
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import fit_head
from btfl.recipes.ttt import as_auxiliary, train_jointly


class TTTRelease(FedAvg):
    """FedAvg, whose clients learn rotations only when they fine-tune: nothing about them is uploaded."""

    name: ClassVar[str] = "ttt-release"
    rounds_of: ClassVar[str | None] = "fedavg"

    def __init__(self, settings: TrainingSettings, sample_shape: tuple[int, ...], classes: int) -> None:
        check_square(sample_shape)
        super().__init__(settings, sample_shape, classes)

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Measure what the test-time methods need, train a rotation head, and fine-tune network and head together."""
        settings, network = self.settings, self.received(shared)
        bundle = self.bundle(network, private, data, everyone)
        head = new_rotation_head(network.feature_size, settings.seed)
        epochs = settings.rounds * settings.personal_epochs  # as many as the head has had there
        turned = _turned_batches(data.train, epochs, settings, "rotation head", data.client)
        fit_head(head, network, turned, settings)
        train_jointly(
            network, head, data.train, settings.finetune_epochs, settings, self.loss(data), "finetune", data.client
        )
        return ClientOutcome(bundle, {"finetuned": {**to_arrays(network), **as_auxiliary(head)}})


def _turned_batches(
    data: Samples, epochs: int, settings: TrainingSettings, *purpose: str | int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    rng, turning = generator(settings.seed, *purpose), generator(settings.seed, "rotations", *purpose)
    for _ in range(epochs):
        for images, labels in shuffled_batches(data, settings.batch, rng, settings.augment):
            turns = torch.from_numpy(turning.integers(TURNS, size=len(labels)))
            yield rotated(images, turns), turns
