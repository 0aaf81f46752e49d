"""Ditto (Li et al., ICML 2021): FedAvg, and beside it a personal model for each client that is held to the global one.

A round: the model that was received is trained and uploaded as in FedAvg. The client's personal model v, which never
leaves it, is trained as long on the same data, with lambda / 2 |v - w|^2 added to its loss, where w is the global
model as it was received. Lambda is 1, the paper's for clients without validation data; there, others choose from 0.1,
1 and 2, which would take three trainings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network, load_arrays
from btfl.recipes.base import Description, Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.training import Loss, plain_loss, trained_copy

MODEL = "personal_model."


class Ditto(FedAvg):
    """FedAvg's model and personal head, and a personal model near the global one."""

    name: ClassVar[str] = "ditto"
    private_records: ClassVar[bool] = True  # the personal model stays with the client
    grows_surer: ClassVar[bool] = True

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Do FedAvg's work, then train the personal model towards its own data and the model that was received."""
        update = super().train(round_, shared, _without_model(private), data)
        model = self._follow(round_, shared, private, data)
        return replace(update, private={**update.private, **model})

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Describe the data under the global model, and keep the personal one as it is."""
        description = super().describe(shared, _without_model(private), data)
        model = {key: array for key, array in private.items() if key.startswith(MODEL)}
        return replace(description, private={**description.private, **model})

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Keep the personal model beside what FedAvg leaves; a client that was never drawn has the global one."""
        outcome = super().conclude(shared, _without_model(private), data, everyone)
        own = {key.removeprefix(MODEL): array for key, array in private.items() if key.startswith(MODEL)}
        return replace(outcome, networks={**outcome.networks, "personal": own or shared})

    def _follow(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Weights:
        """Return the personal model after another round, under the names it is kept by."""
        network = self.received(shared)
        anchor = [parameter.detach().clone() for parameter in network.parameters()]
        if own := {key.removeprefix(MODEL): array for key, array in private.items() if key.startswith(MODEL)}:
            load_arrays(network, own)
        settings, loss = self.settings, self._held(network, anchor)
        model = trained_copy(network, data, settings.local_epochs, settings, loss, "ditto", round_, data.client)
        return {f"{MODEL}{key}": array for key, array in model.items()}

    def _held(self, network: Network, anchor: list[torch.Tensor]) -> Loss:
        """Return the plain loss plus lambda / 2 times the squared distance to the anchor."""
        plain, strength = plain_loss(self.settings), self.settings.ditto_lambda / 2

        def loss(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            pairs = zip(network.parameters(), anchor, strict=True)
            return plain(features, logits, labels) + strength * sum(((v - w) ** 2).sum() for v, w in pairs)

        return loss


def _without_model(private: Weights) -> Weights:
    return {key: array for key, array in private.items() if not key.startswith(MODEL)}
