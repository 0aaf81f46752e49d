"""FedTHE+ (Jiang and Lin, ICLR 2023): FedTHE, then test-time tuning of the network for each sample.

With FedTHE's e held fixed, the extractor and both heads take a few steps that make the mixed answer to augmented copies
of the sample surer (MEMO's marginal entropy; Zhang et al., NeurIPS 2022). After the prediction all is restored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Takes
from btfl.methods.card import SKY, Card
from btfl.methods.fedthe import FedThe, FedTheSettings
from btfl.methods.memo import marginal_entropy
from btfl.pixels.types import Images

if TYPE_CHECKING:
    import torch

    from btfl.models import Network


@dataclass(frozen=True)
class FedThePlusSettings(FedTheSettings):
    """How FedTHE+ decides and tunes."""

    title: ClassVar[str] = "FedTHE+"

    tuning_steps: int = knob(3, "Steps of tuning for each sample.", least=0)
    tuning_rate: float = knob(0.0005, "Size of a step of tuning.", above=0)
    copies: int = knob(16, "Augmented copies of the sample that a step sees.", least=1)
    seed: int = knob(0, "Random seed of the copies.")


class FedThePlus(FedThe):
    """FedTHE whose network and heads are tuned to each sample, and restored after it.

    ``tuning_steps`` steps at ``tuning_rate`` on ``copies`` augmented copies, drawn again for each step, as in the
    authors' program. The answer is no longer one of the two trained heads', so their oracle is not its ceiling.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedthe-plus",
            "FedTHE+",
            "FedTHE, then a few steps on the marginal entropy of each sample's augmented copies",
            "Jiang and Lin, ICLR 2023",
            SKY,
            "d",
            "dashed",
        ),
    )
    takes: ClassVar[Takes] = "images"
    gradients: ClassVar[bool] = True
    samples: ClassVar[tuple[str, ...]] = ("images",)
    settings_class: ClassVar[type[Settings]] = FedThePlusSettings
    settings: FedThePlusSettings

    def __init__(
        self, client: Client | ClientBundle, settings: FedThePlusSettings | None = None, **changes: Any
    ) -> None:
        from btfl.models.tuning import Snapshot, plain_sgd

        super().__init__(client, settings, **changes)
        self.network: Network = self.client.network("global")
        self.personal = _as_module(self.bundle.personal_head)
        self._first = Snapshot(self.network, self.personal)
        parameters = [*self.network.parameters(), *self.personal.parameters()]
        self._optimiser = plain_sgd(parameters, self.settings.tuning_rate)

    def predict(self, batch: ArrayLike) -> Floats:
        """Weigh the heads, then tune to each of (samples, height, width, channels) images before its prediction."""
        import torch

        from btfl.models.forward import extract

        images = np.ascontiguousarray(batch)
        super().predict(extract(self.network, images))
        answers = []
        for image, e in zip(images, self.trace["e"].tolist(), strict=True):
            try:
                self.tune(image, e)
                with torch.no_grad():
                    answers.append(self._mixed(image[None], e)[0].numpy().astype(np.float64))
            finally:
                self._first.restore()
        return np.exp(log_softmax(np.stack(answers)))

    def tune(self, image: Images, e: float) -> list[float]:
        """Take the steps for one image of (height, width, channels); return the marginal entropy before each."""
        import torch

        from btfl.models.tuning import draws_for
        from btfl.pixels.augmix import augmix

        rng = draws_for(image, self.settings.seed, "fedthe-plus")
        losses = []
        with torch.enable_grad():
            for _ in range(self.settings.tuning_steps):
                self._optimiser.zero_grad(set_to_none=True)
                loss = marginal_entropy(self._mixed(augmix(image, self.settings.copies, rng), e))
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimiser.step()
                losses.append(float(loss.detach()))
        return losses

    def _mixed(self, images: Images, e: float) -> torch.Tensor:
        from btfl.models.inputs import to_tensor

        features = self.network.features(to_tensor(images))
        mixed: torch.Tensor = e * self.network.head(features) + (1 - e) * self.personal(features)
        return mixed

    def reset(self) -> None:
        """Forget the stream, and restore network and heads."""
        super().reset()
        self._first.restore()


def _as_module(head: LinearHead) -> torch.nn.Linear:
    from torch import nn
    from torch.nn.utils import skip_init

    from btfl.models import load_arrays

    arrays = {"weight": head.weight} if head.bias is None else {"weight": head.weight, "bias": head.bias}
    module: nn.Linear = skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, head.dimensions, head.classes, bias=head.bias is not None
    )
    load_arrays(module, arrays)
    return module
