"""FedAvg (McMahan et al., 2017) with a personal head that never leaves the client (Zhou and Liu, 2025).

A round: one epoch for the personal head on the frozen extractor just received, then local epochs on all of the model,
which is uploaded. When training ends the personal head is brought up to date once more, the client's discretised
likelihood is described, and the average of everyone's comes back.
"""

from __future__ import annotations

from typing import ClassVar

from btfl.models import Network, build, load_arrays, to_arrays
from btfl.recipes.base import ClientData, ClientOutcome, Description, Recipe, Sums, Update, Weights
from btfl.recipes.images import extract
from btfl.recipes.personal import as_linear_head, private_head, to_private
from btfl.recipes.statistics import describe_features, make_bundle
from btfl.recipes.training import Loss, plain_loss, train_head, train_network, workbench

PERSONAL = "personal_head"


class FedAvg(Recipe):
    """The global model, a personal head for each client, and both likelihoods."""

    name: ClassVar[str] = "fedavg"

    def initial(self) -> Weights:
        """Give the model's initial weights, a function of the seed."""
        settings = self.settings
        network = build(settings.model, self.image_shape, self.classes, settings.seed, **settings.model_options)
        return to_arrays(network)

    def loss(self, data: ClientData) -> Loss:
        """Give what local training minimises."""
        return plain_loss(self.settings)

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Bring the personal head up to date, then train the model locally."""
        settings, network = self.settings, self.received(shared)
        head = private_head(PERSONAL, network.head, private)
        train_head(head, network, data.train, settings.personal_epochs, settings, "personal", round_, data.client)
        metrics = train_network(
            network, data.train, settings.local_epochs, settings, self.loss(data), "local", round_, data.client
        )
        return Update(to_arrays(network), len(data.train), to_private(PERSONAL, head), metrics)

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Personalise on the final model, and add up what its features look like."""
        settings, network = self.settings, self.received(shared)
        head = private_head(PERSONAL, network.head, private)
        train_head(head, network, data.train, settings.personal_epochs, settings, "personal", "final", data.client)
        features = extract(network, data.train.images)
        return Description(describe_features(features, data.train.labels, self.classes), to_private(PERSONAL, head))

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Sums) -> ClientOutcome:
        """Measure what the test-time methods need, and fine-tune a copy of the model."""
        settings, network = self.settings, self.received(shared)
        bundle = make_bundle(
            as_linear_head(network.head),
            as_linear_head(private_head(PERSONAL, network.head, private)),
            extract(network, data.train.images),
            extract(network, data.validation.images),
            data,
            everyone,
            {"client": data.client, "recipe": self.name},
        )
        train_network(
            network, data.train, settings.finetune_epochs, settings, self.loss(data), "finetune", data.client
        )
        return ClientOutcome(bundle, {"finetuned": to_arrays(network)})

    def received(self, shared: Weights) -> Network:
        """Give the network the server sent, to work on."""
        network = workbench(self)
        load_arrays(network, shared)
        return network
