"""What recipes that train a network share: measuring the client's data under the final one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.heads import HeadLike
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network
from btfl.models.forward import extract
from btfl.pixels.augmix import distorted
from btfl.randomness import generator
from btfl.recipes.base import Recipe
from btfl.recipes.training import workbench

DISTORTION = 5.0
"""How strong the distortions are that are added up beside the images as they are; MEMO's at test time have 1."""


class NetworkRecipe(Recipe):
    """A recipe whose clients end with features of one network, a global head and a personal one."""

    def summarise(self, network: Network, data: ClientData) -> Summary:
        """Return the summary a client uploads: of its training images, and of one distorted copy of each."""
        return Summary.of(
            extract(network, data.train.images),
            data.train.labels,
            self.classes,
            distorted=self._features_of_copies(network, data),
            protection=None if self.protection is None else self.protection(data.client),
        )

    def check_summary(self, summary: Summary) -> None:
        """Refuse sums that no client's data could give."""
        network = workbench(self)
        exact = self.protection is None
        summary.check(self.classes, network.feature_size, exact=exact, nonnegative=network.nonnegative)

    def make_bundle(
        self, network: Network, global_head: HeadLike, personal_head: HeadLike, data: ClientData, everyone: Summary
    ) -> ClientBundle:
        """Measure the final network on the client's data, and return what the client keeps."""
        train = extract(network, data.train.images)
        return ClientBundle.of(
            global_head,
            personal_head,
            Summary.of(train, data.train.labels, self.classes),
            everyone,
            features=train,
            labels=data.train.labels,
            validation=(extract(network, data.validation.images), data.validation.labels),
            metadata={"client": data.client, "recipe": self.name},
        )

    def _features_of_copies(self, network: Network, data: ClientData) -> NDArray[np.float32]:
        """What a class looks like when a picture is poor."""
        rng = generator(self.settings.seed, "distorted", data.client)
        return extract(network, distorted(data.train.images, rng, DISTORTION))
