"""FedRep (Collins et al., ICML 2021): a shared extractor, and a private head for each client.

A round: the head is trained on the frozen extractor just received, then the extractor under the frozen head. Only the
extractor is uploaded: the head never leaves the client, so there is no global head at all.

Both halves take ``local_epochs``, as in the program behind the published tables, so that the extractor is trained for
as many epochs as FedAvg's. FedRep's own experiments give the head ten epochs and the extractor one (in some, five).
When training ends the head is trained once more on the final extractor, as at the beginning of a round.
"""

from __future__ import annotations

from typing import ClassVar

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network, load_arrays, to_arrays
from btfl.recipes.base import Description, Update
from btfl.recipes.network import NetworkRecipe
from btfl.recipes.training import first_network, plain_loss, train_head, train_network, workbench

_HEAD = "head."


class FedRep(NetworkRecipe):
    """A shared extractor under private heads, trained in alternation."""

    name: ClassVar[str] = "fedrep"

    def initial(self) -> Weights:
        """Return the extractor's initial weights, a function of the seed."""
        return _extractor(to_arrays(first_network(self)))

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Train the head on the frozen extractor, then the extractor under the frozen head."""
        settings, network = self.settings, self.assembled(shared, private)
        self._train_head(network, round_, data)
        metrics: dict[str, float] = {}
        if any(True for _ in network.extractor.parameters()):  # a linear model has no extractor to train
            metrics = train_network(
                network,
                data.train,
                settings.local_epochs,
                settings,
                plain_loss(settings),
                "body",
                round_,
                data.client,
                only=network.extractor,
            )
        arrays = to_arrays(network)
        return Update(_extractor(arrays), len(data.train), _head(arrays), metrics)

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Train the head on the final extractor, and add up what its features look like."""
        network = self.assembled(shared, private)
        self._train_head(network, "final", data)
        return Description(self.summarise(network, data), _head(to_arrays(network)))

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Make the bundle, in which both heads are the private one: FedRep has no other.

        The whole network stays with the client as ``personal``, since the server's part of it is not a network.
        """
        network = self.assembled(shared, private)
        bundle = self.make_bundle(network, network.head, network.head, data, everyone)
        return ClientOutcome(bundle, {"personal": to_arrays(network)})

    def assembled(self, shared: Weights, private: Weights) -> Network:
        """Put the client's head on the server's extractor; all clients' heads begin as the same one."""
        network = workbench(self)
        load_arrays(network, {**shared, **(private or _head(to_arrays(first_network(self))))})
        return network

    def _train_head(self, network: Network, when: int | str, data: ClientData) -> None:
        epochs, settings = self.settings.local_epochs, self.settings
        train_head(network.head, network, data.train, epochs, settings, "head", when, data.client)


def _extractor(arrays: Weights) -> Weights:
    return {name: array for name, array in arrays.items() if not name.startswith(_HEAD)}


def _head(arrays: Weights) -> Weights:
    return {name: array for name, array in arrays.items() if name.startswith(_HEAD)}
