"""MEMO (Zhang, Levine and Finn, NeurIPS 2022): be sure, and say the same of every variant of the sample.

The variants' predictions are averaged; a low entropy of the average asks for both. After each sample the weights are as
they were, so no sample knows of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.core.bundle import ClientBundle
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method, Takes
from btfl.methods.card import OCHRE, Card
from btfl.pixels.types import Images

if TYPE_CHECKING:
    import torch

    from btfl.models import Network


def marginal_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy, in nats, of the mean of (n, classes) predictions."""
    log_mean = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
    return -(log_mean.exp() * log_mean).sum()


@dataclass(frozen=True)
class MemoSettings(Settings):
    """How MEMO tunes."""

    title: ClassVar[str] = "MEMO"

    steps: int = knob(3, "Steps for each sample.", least=1)
    learning_rate: float = knob(0.0005, "Size of a step.", above=0)
    augmentations: int = knob(32, "Variants of the sample that a step sees.", least=1)
    seed: int = knob(0, "Random seed of the variants.")


class Memo(Method):
    """A few steps of the fine-tuned model on the marginal entropy of each sample's variants, undone after the sample.

    As in the release, each step sees variants of its own. They follow from the sample's pixels and the seed.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "memo",
            "MEMO",
            "steps on the marginal entropy of each sample's variants, undone after the sample",
            "Zhang, Levine and Finn, NeurIPS 2022",
            OCHRE,
            ">",
            "dashed",
        ),
    )
    takes: ClassVar[Takes] = "images"
    gradients: ClassVar[bool] = True
    samples: ClassVar[tuple[str, ...]] = ("images",)
    settings_class: ClassVar[type[Settings]] = MemoSettings
    settings: MemoSettings

    def __init__(self, client: Client | ClientBundle, settings: MemoSettings | None = None, **changes: Any) -> None:
        from btfl.models.tuning import Snapshot, plain_sgd

        super().__init__(client, settings, **changes)
        self.network: Network = self.client.network("finetuned")
        self._first = Snapshot(self.network)
        self._optimiser = plain_sgd(self.network.parameters(), self.settings.learning_rate)

    def predict(self, batch: ArrayLike) -> Floats:
        """Tune to each of (samples, height, width, channels) images, return its probabilities, and undo the tuning."""
        from btfl.models.tuning import predicted

        answers = []
        for image in np.ascontiguousarray(batch):
            try:
                self.tune(image)
                answers.append(predicted(self.network, image))
            finally:
                self._first.restore()
        return np.stack(answers)

    def tune(self, image: Images) -> list[float]:
        """Take the steps on one image of (height, width, channels); return the marginal entropy before each."""
        import torch

        from btfl.models.inputs import to_tensor
        from btfl.models.tuning import draws_for
        from btfl.pixels.augmix import augmix

        chosen = self.settings
        rng = draws_for(image, chosen.seed, "memo")
        variants = to_tensor(augmix(image, chosen.steps * chosen.augmentations, rng))
        entropies = []
        with torch.enable_grad():
            for images in torch.split(variants, chosen.augmentations):
                self._optimiser.zero_grad(set_to_none=True)
                loss = marginal_entropy(self.network(images))
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimiser.step()
                entropies.append(float(loss.detach()))
        return entropies

    def reset(self) -> None:
        """Restore the weights, if a sample has been tuned to and not predicted."""
        super().reset()
        self._first.restore()
