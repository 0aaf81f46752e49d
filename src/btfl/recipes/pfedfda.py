"""pFedFDA's training (McLaughlin and Su, NeurIPS 2024): a shared extractor under Gaussian heads that are never trained.

A round: the client's head is the discriminant of everyone's class means and covariance under its own label shares,
and only the extractor is trained under it. Then the client measures its own means and covariance with its extractor,
chooses how far to go from everyone's to its own, and uploads the extractor and the means and covariance in between;
the server averages all of them by samples. ``methods/pfedfda.py`` has the formulas.

The program behind the paper measures features while it trains, one of each sample and epoch; here they are measured
once, with the extractor that is uploaded. It draws the first means at random, and so does this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from btfl.core.client import AUXILIARY, ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.methods.pfedfda import (
    COVARIANCE,
    MEANS,
    Gaussians,
    PFedFdaSettings,
    between,
    choose_weights,
    client_head,
    discriminant,
    own_gaussians,
    own_shares,
)
from btfl.models import Network, load_arrays, to_arrays
from btfl.models.forward import extract
from btfl.randomness import generator
from btfl.recipes.base import Description, Update
from btfl.recipes.network import NetworkRecipe
from btfl.recipes.parts import extractor_of, head_of
from btfl.recipes.training import Loss, first_network, plain_loss, train_network, workbench

_MEANS, _COVARIANCE = f"{AUXILIARY}{MEANS}", f"{AUXILIARY}{COVARIANCE}"


class PFedFda(NetworkRecipe):
    """A shared extractor, and class means and a covariance that are averaged with it."""

    name: ClassVar[str] = "pfedfda"
    trains_extractor_alone: ClassVar[bool] = True
    formulas: ClassVar[PFedFdaSettings] = PFedFdaSettings()

    def initial(self) -> Weights:
        """Return the extractor's initial weights, random means and a covariance of one, a function of the seed."""
        network = first_network(self)
        shape = self.classes, network.feature_size
        means = generator(self.settings.seed, "pfedfda means").random(shape).astype(np.float32)
        covariance = np.eye(network.feature_size, dtype=np.float32)
        return {**extractor_of(to_arrays(network)), _MEANS: means, _COVARIANCE: covariance}

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Train the extractor under everyone's Gaussian head, then go from everyone's Gaussians towards the own."""
        settings, network, everyone = self.settings, self.received(shared), _everyones(shared)
        metrics = train_network(
            network,
            data.train,
            settings.local_epochs,
            settings,
            self._loss(everyone, data),
            "body",
            round_,
            data.client,
            only=network.extractor,
        )
        features, labels = extract(network, data.train.values).astype(np.float64), data.train.labels
        beta = choose_weights(features, labels, everyone, self.formulas)
        mixed = between(own_gaussians(features, labels, everyone, self.formulas), everyone, beta)
        upload = {
            **extractor_of(to_arrays(network)),
            _MEANS: mixed.means.astype(np.float32),
            _COVARIANCE: mixed.covariance.astype(np.float32),
        }
        answers = discriminant(mixed, own_shares(labels, self.classes)).logits(features).argmax(axis=1)
        told = {
            "loss": metrics["loss"],
            "accuracy": float((answers == labels).mean()),
            "beta_means": float(beta[0]),
            "beta_covariance": float(beta[1]),
        }
        return Update(upload, len(data.train), {}, told)

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """Add up what the final extractor's features look like; nothing more is learned."""
        return Description(self.summarise(self.received(shared), data))

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Choose the weights once more on the final extractor, and keep both Gaussian heads.

        The client's network is kept as ``personal`` for its extractor. Its own head is the initial one, which nothing
        uses: a Gaussian head has a bias, and not every model has a place for one.
        """
        network, gaussians = self.received(shared), _everyones(shared)
        features, labels = extract(network, data.train.values).astype(np.float64), data.train.labels
        personal, _ = client_head(features, labels, gaussians, self.formulas)
        counts = everyone.class_sums().counts
        common = discriminant(gaussians, (counts + 1.0) / (counts + 1.0).sum())
        bundle = self.make_bundle(network, common, personal, data, everyone)
        kept = {MEANS: gaussians.means, COVARIANCE: gaussians.covariance}
        bundle = replace(bundle, statistics={**bundle.statistics, **kept})
        return ClientOutcome(bundle, {"personal": to_arrays(network)})

    def received(self, shared: Weights) -> Network:
        """Return a network with the extractor that the server sent."""
        network = workbench(self)
        load_arrays(network, {**extractor_of(shared), **head_of(to_arrays(first_network(self)))})
        return network

    def _loss(self, everyone: Gaussians, data: ClientData) -> Loss:
        """Return the loss of features under everyone's Gaussian head, whatever head the network has."""
        head = discriminant(everyone, own_shares(data.train.labels, self.classes))
        assert head.bias is not None
        weight, bias = (torch.from_numpy(part.astype(np.float32)) for part in (head.weight, head.bias))
        plain = plain_loss(self.settings)

        def loss(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return plain(features, features @ weight.T + bias, labels)

        return loss


class PFedFdaRelease(PFedFda):
    """The same with the covariance of the authors' program."""

    name: ClassVar[str] = "pfedfda-release"
    formulas: ClassVar[PFedFdaSettings] = PFedFdaSettings(release=True)


def _everyones(shared: Weights) -> Gaussians:
    return Gaussians(shared[_MEANS].astype(np.float64), shared[_COVARIANCE].astype(np.float64))
