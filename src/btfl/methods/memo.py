"""MEMO (Zhang, Levine and Finn, NeurIPS 2022): be sure, and say the same of every variant of the sample.

The variants' predictions are averaged; a low entropy of the average asks for both. After each sample the weights are as
they were, so no sample knows of another.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.methods.base import Adapter, Floats, Takes
from btfl.methods.checks import check_count, check_positive
from btfl.methods.tuning import Snapshot, draws_for, plain_sgd, predicted
from btfl.pixels.augmix import augmix
from btfl.pixels.images import to_tensor
from btfl.pixels.types import Images
from btfl.runs.client import DeployedClient


def marginal_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy, in nats, of the mean of (n, classes) predictions."""
    log_mean = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
    return -(log_mean.exp() * log_mean).sum()


class Memo(Adapter):
    """A few steps of the fine-tuned model on the marginal entropy of each sample's variants, undone after the sample.

    As in the release, each step sees variants of its own. They follow from the sample's pixels and the seed.
    """

    takes: ClassVar[Takes] = "images"
    paper: ClassVar[str] = "Zhang, Levine and Finn, NeurIPS 2022"
    summary: ClassVar[str] = "steps on the marginal entropy of each sample's variants, undone after the sample"

    def __init__(
        self,
        client: DeployedClient,
        steps: int = 3,
        learning_rate: float = 0.0005,
        augmentations: int = 32,
        seed: int = 0,
    ) -> None:
        check_count("memo", "steps", steps)
        check_positive("memo", "learning_rate", learning_rate)
        check_count("memo", "augmentations", augmentations)
        super().__init__(client)
        self.network = client.network("finetuned")
        self._first = Snapshot(self.network)
        self._optimiser = plain_sgd(self.network.parameters(), learning_rate)
        self._steps, self._augmentations, self._seed = steps, augmentations, seed

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Tune to each sample on its own, give its probabilities, and undo the tuning."""
        answers = []
        for image in batch:
            try:
                self.tune(image)
                answers.append(predicted(self.network, image))
            finally:
                self._first.restore()
        return np.stack(answers)

    @torch.enable_grad()
    def tune(self, image: Images) -> list[float]:
        """Take the steps on one image of (height, width, channels); give the marginal entropy before each."""
        rng = draws_for(image, self._seed, "memo")
        variants = to_tensor(augmix(image, self._steps * self._augmentations, rng))
        entropies = []
        for images in torch.split(variants, self._augmentations):
            self._optimiser.zero_grad(set_to_none=True)
            loss = marginal_entropy(self.network(images))
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            entropies.append(float(loss.detach()))
        return entropies

    def reset(self) -> None:
        """Put the weights back, if a sample has been tuned to and not predicted."""
        self._first.restore()
