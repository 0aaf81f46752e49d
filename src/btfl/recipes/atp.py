"""ATP's training (Bao et al., NeurIPS 2023): FedAvg, then rounds in which clients learn how fast each tensor may adapt.

After FedAvg's rounds the model stays as it is. In each further round a client takes the rates a that it was sent and
goes through samples that the model was not trained on, its validation part, in batches of 20: with the gradient g_u
of the batch's entropy it takes the step p - a g_u, measures the gradient g_s of the labels' loss there, and changes
the rates,

    a_i <- a_i + 0.1 <g_s, g_u> / sqrt(numbers in tensor i),

so that a rate grows where following the entropy would have lowered the loss. The model goes back after each batch.
Rates begin at zero and are averaged by the server (by samples, as all that is uploaded here; the authors' by
clients). Theirs takes 400 rounds with a quarter of 240 clients; ``adaptation_rounds`` is 20, with all clients.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from btfl.core.client import AUXILIARY, Weights, split_auxiliary
from btfl.data.federated import ClientData
from btfl.methods.atp import adapt
from btfl.models import Network, to_arrays
from btfl.models.tuning import Snapshot
from btfl.randomness import generator
from btfl.recipes.base import Update
from btfl.recipes.batches import shuffled_batches
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.training import first_network

RATES = f"{AUXILIARY}atp.rates"
BATCH, STEP = 20, 0.1


class Atp(FedAvg):
    """FedAvg's model and personal heads, and a rate of adaptation for each of the model's tensors."""

    name: ClassVar[str] = "atp"
    rounds_of: ClassVar[str | None] = "fedavg"

    @property
    def rounds(self) -> int:
        """FedAvg's rounds, and those in which rates are learned."""
        return self.settings.rounds + self.settings.adaptation_rounds

    def initial(self) -> Weights:
        """Return the model's initial weights, and rates of zero."""
        tensors = len(list(first_network(self).parameters()))
        return {**super().initial(), RATES: np.zeros(tensors, np.float32)}

    def received(self, shared: Weights) -> Network:
        """Return the network the server sent."""
        return super().received(split_auxiliary(shared)[0])

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Do FedAvg's work; after its rounds, learn rates on the validation part, and leave the model as it is."""
        network = self.received(shared)
        rates = shared.get(RATES, np.zeros(len(list(network.parameters())), np.float32))
        if round_ <= self.settings.rounds:
            update = super().train(round_, shared, private, data)
            return Update({**update.upload, RATES: rates}, update.samples, update.private, update.metrics)
        weights = to_arrays(network)
        learned, metrics = self.learn(network, rates.astype(np.float64).tolist(), round_, data)
        return Update({**weights, RATES: np.array(learned, np.float32)}, len(data.train), private, metrics)

    def learn(
        self, network: Network, rates: list[float], round_: int, data: ClientData
    ) -> tuple[list[float], dict[str, float]]:
        """Return the rates after a pass through the validation part, and mean loss and accuracy after the steps."""
        first, parameters, total, right = Snapshot(network), list(network.parameters()), 0.0, 0
        rng = generator(self.settings.seed, "atp", round_, data.client)
        for images, labels in shuffled_batches(data.validation, BATCH, rng, augment=False):
            unsupervised = adapt(network, images, rates)
            with torch.enable_grad():
                logits = network(images)
                loss = nn.functional.cross_entropy(logits, labels)
                supervised = torch.autograd.grad(loss, parameters)
            for i, (own, other) in enumerate(zip(supervised, unsupervised, strict=True)):
                rates[i] += STEP * float((own * other).sum()) / own.numel() ** 0.5
            first.restore()
            total += float(loss.detach()) * len(labels)
            right += int((logits.detach().argmax(1) == labels).sum())
        samples = max(len(data.validation), 1)
        return rates, {"loss": total / samples, "accuracy": right / samples}
