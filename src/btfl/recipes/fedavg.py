"""FedAvg (McMahan et al., 2017) with a personal head that never leaves the client (Zhou and Liu, 2025).

A round: one epoch for the personal head on the frozen extractor just received, then local epochs on all of the model,
which is uploaded. When training ends the personal head is brought up to date once more, the client's discretised
likelihood is described, and the average of everyone's comes back.
"""

from __future__ import annotations

from typing import ClassVar

from btfl.core.bundle import ClientBundle
from btfl.core.calibration import Calibration
from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network, load_arrays, to_arrays
from btfl.recipes.base import Description, Update
from btfl.recipes.dp_sgd import check_model, train_records
from btfl.recipes.network import NetworkRecipe
from btfl.recipes.noise_plan import make_plan
from btfl.recipes.personal import private_head, to_private
from btfl.recipes.training import (
    Loss,
    first_network,
    plain_loss,
    train_head,
    train_network,
    trained_copy,
    workbench,
)

PERSONAL = "personal_head"


class FedAvg(NetworkRecipe):
    """The global model, a personal head for each client, and both likelihoods."""

    name: ClassVar[str] = "fedavg"
    calibrates: ClassVar[bool] = True
    private_records: ClassVar[bool] = True
    grows_surer: ClassVar[bool] = True

    def initial(self) -> Weights:
        """Return the model's initial weights, a function of the seed."""
        if self.settings.clips_records:
            check_model(self)
        return to_arrays(first_network(self))

    def loss(self, data: ClientData) -> Loss:
        """Return what local training minimises."""
        return plain_loss(self.settings)

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Bring the personal head up to date, then train the model locally."""
        settings, network = self.settings, self.received(shared)
        private = self.personalise(round_, network, private, data)
        if settings.clips_records:
            check_model(self)
            noise = make_plan(settings, self.rounds).training
            assert noise is not None, "there is a round"
            train_records(network, data.train, settings, self.loss(data), noise, round_, data.client)
            return Update(to_arrays(network), 1, private)  # nobody is told how many records there are
        metrics = train_network(
            network, data.train, settings.local_epochs, settings, self.loss(data), "local", round_, data.client
        )
        return Update(to_arrays(network), len(data.train), private, metrics)

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Personalise on the final model, and add up what its features look like."""
        network = self.received(shared)
        private = self.personalise("final", network, private, data)
        return Description(self.summarise(network, data), private)

    def calibrate(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> Calibration:
        """Look at the validation part with both heads."""
        network = self.received(shared)
        return self.look(network, network.head, private_head(PERSONAL, network.head, private), data, everyone)

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Measure what the test-time methods need, and fine-tune a copy of the model."""
        bundle = self.bundle(self.received(shared), private, data, everyone)
        return ClientOutcome(bundle, {"finetuned": self.finetuned(shared, data)})

    def finetuned(self, shared: Weights, data: ClientData) -> Weights:
        """Return a copy of the model after further epochs on the client's own samples (FedAvg+FT)."""
        settings, network, loss = self.settings, self.received(shared), self.loss(data)
        return trained_copy(network, data, settings.finetune_epochs, settings, loss, "finetune", data.client)

    def personalise(self, when: int | str, network: Network, private: Weights, data: ClientData) -> Weights:
        """Train what is the client's own on the frozen network, in a round or at the end; give it back."""
        head = private_head(PERSONAL, network.head, private)
        epochs, settings = self.settings.personal_epochs, self.settings
        train_head(head, network, data.train, epochs, settings, "personal", when, data.client)
        return to_private(PERSONAL, head)

    def bundle(self, network: Network, private: Weights, data: ClientData, everyone: Summary) -> ClientBundle:
        """Measure the final model on the client's data."""
        personal = private_head(PERSONAL, network.head, private)
        return self.make_bundle(network, network.head, personal, data, everyone)

    def received(self, shared: Weights) -> Network:
        """Return the network the server sent, to work on."""
        network = workbench(self)
        load_arrays(network, shared)
        return network
