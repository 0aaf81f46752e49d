"""FedBABU (Oh et al., ICLR 2022): the body is federated under a random head that is never trained.

A round: only the extractor is trained, under the head as it was drawn from the seed, the same on every client. When
training ends each client fine-tunes all of the network on its own data, for ``babu_epochs``; before that, body and
random head are the paper's global model. The head is uploaded with the body, though it is the same in every round, so
that the server has a whole network.
"""

from __future__ import annotations

from typing import ClassVar

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import to_arrays
from btfl.recipes.base import Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.training import train_network, trained_copy


class FedBabu(FedAvg):
    """A body that is trained under a fixed head; at the end a fine-tuned network for each client."""

    name: ClassVar[str] = "fedbabu"
    trains_extractor_alone: ClassVar[bool] = True

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Train the extractor under the frozen head."""
        settings, network, loss = self.settings, self.received(shared), self.loss(data)
        metrics = train_network(
            network,
            data.train,
            settings.local_epochs,
            settings,
            loss,
            "body",
            round_,
            data.client,
            only=network.extractor,
        )
        return Update(to_arrays(network), len(data.train), {}, metrics)

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Measure the body's features, and fine-tune body and head."""
        settings, network = self.settings, self.received(shared)
        bundle = self.bundle(network, private, data, everyone)
        loss, epochs = self.loss(data), settings.babu_epochs
        finetuned = trained_copy(network, data, epochs, settings, loss, "finetune", data.client)
        return ClientOutcome(bundle, {"finetuned": finetuned})
