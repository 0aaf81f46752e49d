"""TTT's training (Sun et al., ICML 2020) in a federation: FedAvg with a head that guesses how an image was turned.

The rotation head sits on the features, beside the classifier. Both losses are added up wherever the network is trained:
in the local epochs, and in the epoch of fine-tuning at the end. The rotation head is uploaded and averaged with the
network, as weights of their own name, so the classifier still loads without it.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from btfl.core.client import AUXILIARY, ClientOutcome, Weights, split_auxiliary
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.data.source import Samples
from btfl.models import Network, to_arrays, torch_draws
from btfl.models.rotations import TURNS, check_square, new_rotation_head, rotated, rotation_head
from btfl.randomness import generator
from btfl.recipes.base import Update
from btfl.recipes.batches import shuffled_batches
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.personal import to_private
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import Loss, make_optimiser

ROTATION = "rotation"


class TTT(FedAvg):
    """FedAvg whose network also learns to tell rotations apart, which needs no label and so can go on at test time."""

    name: ClassVar[str] = "ttt"

    def __init__(self, settings: TrainingSettings, sample_shape: tuple[int, ...], classes: int) -> None:
        check_square(sample_shape)
        super().__init__(settings, sample_shape, classes)

    def initial(self) -> Weights:
        """Return the model's initial weights and the rotation head's."""
        weights = super().initial()
        feature_size = weights["head.weight"].shape[1]
        return {**weights, **as_auxiliary(new_rotation_head(feature_size, self.settings.seed))}

    def received(self, shared: Weights) -> Network:
        """Return the network the server sent, without the rotation head."""
        network, _ = split_auxiliary(shared)
        return super().received(network)

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Bring the personal head up to date, then train network and rotation head together."""
        network = self.received(shared)
        private = self.personalise(round_, network, private, data)
        weights, metrics = self._fit(network, shared, data, self.settings.local_epochs, "local", round_, data.client)
        return Update(weights, len(data.train), private, metrics)

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Measure what the test-time methods need, and fine-tune network and rotation head together."""
        network = self.received(shared)
        bundle = self.bundle(network, private, data, everyone)
        finetuned, _ = self._fit(network, shared, data, self.settings.finetune_epochs, "finetune", data.client)
        return ClientOutcome(bundle, {"finetuned": finetuned})

    def _fit(
        self, network: Network, shared: Weights, data: ClientData, epochs: int, *purpose: str | int
    ) -> tuple[Weights, dict[str, float]]:
        head = shared_rotation_head(shared)
        metrics = train_jointly(network, head, data.train, epochs, self.settings, self.loss(data), *purpose)
        return {**to_arrays(network), **as_auxiliary(head)}, metrics


def shared_rotation_head(shared: Weights) -> nn.Linear:
    """Return the rotation head that came with a network."""
    _, heads = split_auxiliary(shared)
    return rotation_head({key.removeprefix(f"{ROTATION}."): array for key, array in heads.items()})


def as_auxiliary(head: nn.Linear) -> Weights:
    """Return a rotation head's weights by the names under which they travel with a network."""
    return to_private(f"{AUXILIARY}{ROTATION}", head)


def train_jointly(
    network: Network,
    head: nn.Linear,
    data: Samples,
    epochs: int,
    settings: TrainingSettings,
    loss: Loss,
    *purpose: str | int,
) -> dict[str, float]:
    """Train on the labels of the upright images plus the turns of a rotated copy of each; give the last epoch's means.

    Each image is turned once a batch, at random, as in TTT's release: four copies would cost 2.5 times as much.
    """
    network.train()
    optimiser = make_optimiser(settings, [*network.parameters(), *head.parameters()])
    rng, turning = generator(settings.seed, *purpose), generator(settings.seed, "rotations", *purpose)
    sums = {"loss": 0.0, "accuracy": 0.0, "rotation_loss": 0.0, "rotation_accuracy": 0.0}
    with torch_draws(settings.seed, "dropout", *purpose):
        for _ in range(epochs):
            sums = dict.fromkeys(sums, 0.0)
            for images, labels in shuffled_batches(data, settings.batch, rng, settings.augment):
                turns = torch.from_numpy(turning.integers(TURNS, size=len(labels)))
                optimiser.zero_grad(set_to_none=True)
                features = network.features(images)
                logits = network.head(features)
                # A pass of its own, so that rotated images have no part in a BatchNorm's view of the upright ones.
                guesses = head(network.features(rotated(images, turns)))
                main, auxiliary = loss(features, logits, labels), nn.functional.cross_entropy(guesses, turns)
                (main + auxiliary).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                sums["loss"] += float(main.detach()) * len(labels)
                sums["accuracy"] += int((logits.detach().argmax(1) == labels).sum())
                sums["rotation_loss"] += float(auxiliary.detach()) * len(labels)
                sums["rotation_accuracy"] += int((guesses.detach().argmax(1) == turns).sum())
    return {name: total / len(data) for name, total in sums.items()}
