"""FedDBE (Zhang et al., NeurIPS 2023): FedAvg in which a client's bias of the features is a vector of its own.

A client reads its features z as head(z + c), with a vector c that is trained with the network and never leaves it, so
that the extractor itself need not be biased. To keep c from being idle, the mean of its features is held to
everyone's:

    loss = cross-entropy(head(z + c)) + kappa * mean over dimensions of (running mean - everyone's mean)^2 / 2.

Everyone's mean is that of the clients' mean features after a first training; here after the first round, which has no
such term, and it stays as it is from then on. Since head(z + c) = W z + (W c + b), a client ends with two heads on
the same features: the bare one, a global view, and its own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from btfl.core.bundle import ClientBundle
from btfl.core.calibration import Calibration
from btfl.core.client import AUXILIARY, Weights, split_auxiliary
from btfl.core.heads import LinearHead
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network, to_arrays, torch_draws
from btfl.models.forward import extract
from btfl.randomness import generator
from btfl.recipes.base import Update
from btfl.recipes.batches import shuffled_batches
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.training import make_optimiser, plain_loss

MEAN, OFFSET = f"{AUXILIARY}feddbe.mean", "feddbe.offset"


class FedDbe(FedAvg):
    """The global model, everyone's mean feature, and a vector for each client that is added to its features."""

    name: ClassVar[str] = "feddbe"

    def initial(self) -> Weights:
        """Return the model's initial weights, and no mean feature yet."""
        weights = super().initial()
        return {**weights, MEAN: np.zeros(weights["head.weight"].shape[1], np.float32)}

    def received(self, shared: Weights) -> Network:
        """Return the network the server sent."""
        return super().received(split_auxiliary(shared)[0])

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Train network and offset together; after the first round, near everyone's mean feature."""
        network, offset = self.received(shared), self._offset(shared, private)
        mean = None if round_ == 1 else torch.from_numpy(np.array(shared[MEAN]))
        metrics = self._fit(network, offset, mean, data, "local", round_, data.client)
        told = extract(network, data.train.values).mean(axis=0, dtype=np.float64) if mean is None else shared[MEAN]
        upload = {**to_arrays(network), MEAN: np.asarray(told, dtype=np.float32)}
        return Update(upload, len(data.train), {OFFSET: offset.detach().numpy().copy()}, metrics)

    def personalise(self, when: int | str, network: Network, private: Weights, data: ClientData) -> Weights:
        """Return the offset as it is: it is trained with the network, in the rounds."""
        return private

    def calibrate(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> Calibration:
        """Look at the validation part with both heads."""
        network = self.received(shared)
        return self.look(network, network.head, moved_head(network, private), data, everyone)

    def bundle(self, network: Network, private: Weights, data: ClientData, everyone: Summary) -> ClientBundle:
        """Measure the final model; the personal head is the global one, read off features that are moved by c."""
        return self.make_bundle(network, network.head, moved_head(network, private), data, everyone)

    def _offset(self, shared: Weights, private: Weights) -> nn.Parameter:
        return nn.Parameter(torch.from_numpy(np.array(private.get(OFFSET, np.zeros_like(shared[MEAN])))))

    def _fit(
        self, network: Network, offset: nn.Parameter, mean: torch.Tensor | None, data: ClientData, *purpose: str | int
    ) -> dict[str, float]:
        """Train for the local epochs; return the last one's mean loss, without the term, and its accuracy."""
        settings, plain = self.settings, plain_loss(self.settings)
        network.train()
        optimiser = make_optimiser(settings, [*network.parameters(), offset])
        rng, running, total, right = generator(settings.seed, *purpose), None, 0.0, 0
        with torch_draws(settings.seed, "dropout", *purpose):
            for _ in range(settings.local_epochs):
                total, right = 0.0, 0
                for images, labels in shuffled_batches(data.train, settings.batch, rng, settings.augment):
                    optimiser.zero_grad(set_to_none=True)
                    features = network.features(images)
                    logits = network.head(features + offset)
                    value = loss = plain(features, logits, labels)
                    now = features.mean(0)
                    if running is not None:
                        now = (1 - settings.dbe_momentum) * running + settings.dbe_momentum * now
                    if mean is not None:
                        loss = value + settings.dbe_kappa * (0.5 * (now - mean) ** 2).mean()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    running = now.detach()
                    total += float(value.detach()) * len(labels)
                    right += int((logits.detach().argmax(1) == labels).sum())
        return {"loss": total / len(data.train), "accuracy": right / len(data.train)}


def moved_head(network: Network, private: Weights) -> LinearHead:
    """Return the head of features that are moved by the client's own vector c: W z + (W c + b)."""
    head = LinearHead.of(network.head)
    offset = np.asarray(private.get(OFFSET, np.zeros(head.dimensions)), dtype=np.float64)
    bias = np.zeros(head.classes) if head.bias is None else head.bias
    return LinearHead(head.weight, bias + head.weight @ offset)
