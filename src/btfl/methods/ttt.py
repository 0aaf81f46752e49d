"""TTT, online (Sun et al., ICML 2020): go on learning to tell rotations apart, sample by sample.

The network learnt the rotations together with the classes, so a step that makes it see better which way up a sample is
should also help it see what it is. The steps are kept for the samples that follow.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.methods.base import Adapter, Floats, Takes
from btfl.methods.checks import check_count, check_positive
from btfl.methods.tuning import Snapshot, draws_for, plain_sgd, predicted
from btfl.models.rotations import rotated_every_way, rotation_head
from btfl.pixels.images import crop_and_flip, to_tensor
from btfl.pixels.types import Images
from btfl.runs.client import DeployedClient


class TestTimeTraining(Adapter):
    """One step on the rotation loss of each sample before its prediction, kept for the next sample.

    A step sees ``copies`` of the sample, shifted and mirrored at random as in training, each turned all four ways: 32
    images with the default. It moves the extractor and the rotation head; the classifier is left alone. Samples are
    taken one at a time, so the answers do not depend on how the stream is cut into batches.
    """

    __test__: ClassVar[bool] = False  # or else pytest takes the name for a test's
    takes: ClassVar[Takes] = "images"
    recipe: ClassVar[str] = "ttt"
    paper: ClassVar[str] = "Sun et al., ICML 2020"
    summary: ClassVar[str] = "a step on each sample's rotations, kept for the next sample"

    def __init__(
        self, client: DeployedClient, steps: int = 1, learning_rate: float = 0.001, copies: int = 8, seed: int = 0
    ) -> None:
        check_count("ttt", "steps", steps)
        check_positive("ttt", "learning_rate", learning_rate)
        check_count("ttt", "copies", copies)
        super().__init__(client)
        self.network = client.network("finetuned")
        self.rotation = rotation_head(client.auxiliary("finetuned", "rotation"))
        self._first = Snapshot(self.network, self.rotation)
        self._optimiser = plain_sgd([*self.network.extractor.parameters(), *self.rotation.parameters()], learning_rate)
        self._steps, self._copies, self._seed = steps, copies, seed

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Learn from each sample's rotations, then give its probabilities."""
        answers = []
        for image in batch:
            self.learn(image)
            answers.append(predicted(self.network, image))
        return np.stack(answers)

    @torch.enable_grad()
    def learn(self, image: Images) -> list[float]:
        """Take the steps on one image of (height, width, channels); give the rotation loss before each."""
        copies = np.repeat(image[None], self._copies, axis=0)
        rng = draws_for(image, self._seed, "ttt")
        losses = []
        for _ in range(self._steps):
            images, turns = rotated_every_way(to_tensor(crop_and_flip(copies, rng)))
            self._optimiser.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(self.rotation(self.network.features(images)), turns)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            losses.append(float(loss.detach()))
        return losses

    def reset(self) -> None:
        """Undo all steps."""
        self._first.restore()
