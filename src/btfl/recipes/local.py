"""Local-only: every client trains a network of its own, from the same first weights, and nothing is shared.

The floor of every federation, and asked for wherever personalised learning is compared: a client that does no better
with the others than alone had no reason to join. Each client trains for as many epochs as a FedAvg client does, in
the rounds that it is drawn for.

Recipes upload something by their nature. What a client uploads here says nothing about its data: no weights, and at
the end the summary of a single blank sample, which no bundle contains.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network, load_arrays, to_arrays
from btfl.models.forward import extract
from btfl.recipes.base import Description, Update
from btfl.recipes.network import NetworkRecipe
from btfl.recipes.training import first_network, plain_loss, train_network, workbench


class Local(NetworkRecipe):
    """A network for each client, trained on its own data alone."""

    name: ClassVar[str] = "local"

    def initial(self) -> Weights:
        """Return nothing: nothing is shared."""
        return {}

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Train the client's network for another round."""
        settings, network = self.settings, self.own_network(private)
        loss = plain_loss(settings)
        metrics = train_network(
            network, data.train, settings.local_epochs, settings, loss, "local", round_, data.client
        )
        return Update({}, len(data.train), to_arrays(network), metrics)

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Describe one blank sample, in place of the client's own."""
        blank = np.zeros((1, workbench(self).feature_size))
        return Description(Summary.of(blank, [0], self.classes), private)

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Make a bundle in which the client is all there is: both heads are its own, and so are everyone's sums."""
        network = self.own_network(private)
        own = Summary.of(extract(network, data.train.values), data.train.labels, self.classes)
        bundle = self.make_bundle(network, network.head, network.head, data, own)
        return ClientOutcome(bundle, {"personal": to_arrays(network)})

    def own_network(self, private: Weights) -> Network:
        """Return the client's network; the first time, that which all clients begin with."""
        network = workbench(self)
        load_arrays(network, private or to_arrays(first_network(self)))
        return network
