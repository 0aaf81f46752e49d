"""What recipes that train a network share: measuring the client's data under the final one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.calibration import Calibration
from btfl.core.client import Weights
from btfl.core.heads import HeadLike, LinearHead
from btfl.core.private import Clipping, default_radius
from btfl.core.summary import Protection, Summary
from btfl.data.federated import ClientData
from btfl.data.samples import Values
from btfl.errors import InputError
from btfl.models import Network
from btfl.models.forward import extract
from btfl.pixels import augmix
from btfl.randomness import generator
from btfl.recipes.base import Recipe
from btfl.recipes.training import workbench
from btfl.signals import distort

DISTORTION = 5.0
"""How strong the distortions are that are added up beside the samples as they are; MEMO's at test time have 1."""


class NetworkRecipe(Recipe):
    """A recipe whose clients end with features of one network, a global head and a personal one."""

    def summarise(self, network: Network, data: ClientData) -> Summary:
        """Return the summary a client uploads: of its training samples, and of distorted copies if there are any."""
        return Summary.of(
            extract(network, data.train.values),
            data.train.labels,
            self.classes,
            distorted=self._features_of_copies(network, data),
            protection=self._protection(network, data),
        )

    def _protection(self, network: Network, data: ClientData) -> Protection | None:
        """Return what is done to the client's data before: an own protection, or clipping for a private total."""
        if self.protection is not None:
            return self.protection(data.client)
        if not self.settings.is_private:
            return None
        return Clipping(self.settings.feature_radius or default_radius(network.feature_size))

    def check_summary(self, summary: Summary) -> None:
        """Refuse sums that no client's data could give."""
        network = workbench(self)
        exact = self.protection is None
        summary.check(self.classes, network.feature_size, exact=exact, nonnegative=network.nonnegative)

    def feature_size(self) -> int:
        """Return the width of the network's features."""
        return int(workbench(self).feature_size)

    def shared_head(self, shared: Weights) -> LinearHead | None:
        """Return the network's head, if it is among the weights that everyone trained."""
        weight = shared.get("head.weight")
        return None if weight is None else LinearHead.of((weight, shared.get("head.bias")))

    def look(
        self, network: Network, global_head: HeadLike, personal_head: HeadLike, data: ClientData, everyone: Summary
    ) -> Calibration:
        """Return what the client's validation part makes of everyone's summary."""
        if self.protection is not None:
            raise InputError("sums over validation parts have no protection yet, so they are not uploaded")
        own = Summary.of(extract(network, data.train.values), data.train.labels, self.classes)
        features = extract(network, data.validation.values)
        return Calibration.of(global_head, personal_head, own, everyone, features, data.validation.labels)

    def make_bundle(
        self, network: Network, global_head: HeadLike, personal_head: HeadLike, data: ClientData, everyone: Summary
    ) -> ClientBundle:
        """Measure the final network on the client's data, and return what the client keeps."""
        train = extract(network, data.train.values)
        return ClientBundle.of(
            global_head,
            personal_head,
            Summary.of(train, data.train.labels, self.classes),
            everyone,
            features=train,
            labels=data.train.labels,
            validation=(extract(network, data.validation.values), data.validation.labels),
            metadata={"client": data.client, "recipe": self.name, **self._promise()},
        )

    def _promise(self) -> dict[str, Any]:
        promise = self.settings.promise()
        return {"privacy": promise} if promise else {}

    def _features_of_copies(self, network: Network, data: ClientData) -> NDArray[np.float32] | None:
        """What a class looks like when a sample is poor; None for vectors that come without copies."""
        copies = self._copies(data)
        return None if copies is None else extract(network, copies)

    def _copies(self, data: ClientData) -> Values | None:
        train = data.train
        if train.copies is not None or train.kind == "vectors":
            return train.copies
        rng = generator(self.settings.seed, "distorted", data.client)
        distorted = augmix.distorted if train.kind == "images" else distort.distorted
        return distorted(train.values, rng, DISTORTION)
