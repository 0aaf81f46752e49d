"""FedAvg (McMahan et al., 2017) with a personal head that never leaves the client (Zhou and Liu, 2025).

A round: one epoch for the personal head on the frozen extractor just received, then local epochs on all of the model,
which is uploaded. When training ends the personal head is brought up to date once more, the client's discretised
likelihood is described, and the average of everyone's comes back.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.bayes.evidence import entropy, log_softmax
from btfl.bayes.likelihood import DiscretisedLikelihood
from btfl.bundle import ClientBundle
from btfl.heads import LinearHead
from btfl.models import Network, build, load_arrays, to_arrays
from btfl.recipes.base import ClientData, ClientOutcome, Description, Recipe, Sums, Update, Weights
from btfl.recipes.images import extract
from btfl.recipes.training import Loss, plain_loss, train_head, train_network, workbench

PERSONAL = "personal_head."


class FedAvg(Recipe):
    """The global model, a personal head for each client, and both likelihoods."""

    name: ClassVar[str] = "fedavg"

    def initial(self) -> Weights:
        """Give the model's initial weights, a function of the seed."""
        settings = self.settings
        network = build(settings.model, self.image_shape, self.classes, settings.seed, **settings.model_options)
        return to_arrays(network)

    def loss(self) -> Loss:
        """Give what local training minimises."""
        return plain_loss(self.settings)

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Bring the personal head up to date, then train the model locally."""
        network = self._received(shared)
        head = self._personal_head(network, private)
        epochs = self.settings.personal_epochs
        train_head(head, network, data.train, epochs, self.settings, "personal", round_, data.client)
        metrics = train_network(
            network, data.train, self.settings.local_epochs, self.settings, self.loss(), "local", round_, data.client
        )
        return Update(to_arrays(network), len(data.train), _named(PERSONAL, head), metrics)

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Personalise on the final model, and count zeros in its features."""
        network = self._received(shared)
        head = self._personal_head(network, private)
        epochs = self.settings.personal_epochs
        train_head(head, network, data.train, epochs, self.settings, "personal", "final", data.client)
        likelihood = DiscretisedLikelihood.fit(extract(network, data.train.images))
        upload = {
            "clients": np.ones(1),
            "samples": np.full(1, float(likelihood.count)),
            "zero_frequencies": likelihood.frequencies,
        }
        return Description(upload, _named(PERSONAL, head))

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Sums) -> ClientOutcome:
        """Measure what the test-time methods need, and fine-tune a copy of the model."""
        network = self._received(shared)
        features = extract(network, data.train.images)
        global_head = _linear_head(to_arrays(network.head))
        personal_head = _linear_head(_unnamed(PERSONAL, private))
        clients = round(float(everyone["clients"][0]))
        bundle = ClientBundle(
            global_head,
            personal_head,
            DiscretisedLikelihood.fit(features),
            DiscretisedLikelihood(
                np.clip(everyone["zero_frequencies"] / clients, 0.0, 1.0), round(float(everyone["samples"][0])), clients
            ),
            local_entropy=_mean_entropy(personal_head, features),
            global_entropy=_mean_entropy(global_head, features),
            metadata={"client": data.client, **self.spec()},
        )
        epochs = self.settings.finetune_epochs
        train_network(network, data.train, epochs, self.settings, self.loss(), "finetune", data.client)
        return ClientOutcome(bundle, {"finetuned": to_arrays(network)})

    def _received(self, shared: Weights) -> Network:
        network = workbench(self)
        load_arrays(network, shared)
        return network

    @staticmethod
    def _personal_head(network: Network, private: Weights) -> nn.Linear:
        """Give the client's own head, or a copy of the global one the first time."""
        with torch.random.fork_rng(devices=[]):
            head = nn.Linear(network.head.in_features, network.head.out_features, network.head.bias is not None)
        load_arrays(head, _unnamed(PERSONAL, private) or to_arrays(network.head))
        return head


def _named(prefix: str, module: nn.Module) -> dict[str, NDArray[np.float32]]:
    return {prefix + name: array for name, array in to_arrays(module).items()}


def _unnamed(prefix: str, arrays: Weights) -> dict[str, NDArray[np.float32]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _linear_head(arrays: Weights) -> LinearHead:
    return LinearHead(np.asarray(arrays["weight"], np.float64), arrays.get("bias"))  # type: ignore[arg-type]


def _mean_entropy(head: LinearHead, features: NDArray[np.float32]) -> float:
    return float(entropy(log_softmax(head.logits(features.astype(np.float64)))).mean())
