"""FedTHE+ (Jiang and Lin, ICLR 2023): FedTHE, then test-time tuning of the network for each sample.

With FedTHE's e held fixed, the extractor and both heads take a few steps that make the mixed answer to augmented copies
of the sample surer (MEMO's marginal entropy; Zhang et al., NeurIPS 2022). After the prediction all is put back.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import skip_init

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.methods.base import Floats, Takes
from btfl.methods.checks import check_count, check_positive
from btfl.methods.fedthe import FedThe, History
from btfl.methods.memo import marginal_entropy
from btfl.methods.tuning import Snapshot, draws_for, plain_sgd
from btfl.models import load_arrays
from btfl.models.forward import extract
from btfl.pixels.augmix import augmix
from btfl.pixels.images import to_tensor
from btfl.pixels.types import Images
from btfl.runs.client import DeployedClient


class FedThePlus(FedThe):
    """FedTHE whose network and heads are tuned to each sample, and put back after it.

    ``tuning_steps`` steps at ``tuning_rate`` on ``copies`` augmented copies, drawn anew for each step, as in the
    authors' program. The answer is no longer one of the two trained heads', so their oracle is not its ceiling.
    """

    takes: ClassVar[Takes] = "images"
    mixes_two_heads: ClassVar[bool] = False
    summary: ClassVar[str] = "FedTHE, then a few steps on the marginal entropy of each sample's augmented copies"

    def __init__(
        self,
        client: DeployedClient,
        steps: int = 20,
        learning_rate: float = 0.1,
        alpha: float = 0.1,
        beta: float = 0.1,
        history: History = "paper",
        tuning_steps: int = 3,
        tuning_rate: float = 0.0005,
        copies: int = 16,
        seed: int = 0,
    ) -> None:
        check_count("fedthe-plus", "tuning_steps", tuning_steps, least=0)
        check_positive("fedthe-plus", "tuning_rate", tuning_rate)
        check_count("fedthe-plus", "copies", copies)
        self._network = client.network("global")
        self._personal = _as_module(client.bundle.personal_head)
        self._first = Snapshot(self._network, self._personal)
        self._optimiser = plain_sgd([*self._network.parameters(), *self._personal.parameters()], tuning_rate)
        self._tuning_steps, self._copies, self._seed = tuning_steps, copies, seed
        super().__init__(client, steps, learning_rate, alpha, beta, history)

    def reset(self) -> None:
        """Forget the stream, and put network and heads back."""
        super().reset()
        self._first.restore()

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Weigh the heads, then tune all to each sample before its prediction."""
        super().predict(extract(self._network, batch))
        answers = []
        for image, e in zip(batch, self._e.tolist(), strict=True):
            try:
                self.tune(image, e)
                with torch.no_grad():
                    answers.append(self._mixed(image[None], e)[0].numpy().astype(np.float64))
            finally:
                self._first.restore()
        return np.exp(log_softmax(np.stack(answers)))

    def tune(self, image: Images, e: float) -> list[float]:
        """Take the steps for one image of (height, width, channels); give the marginal entropy before each."""
        rng = draws_for(image, self._seed, "fedthe-plus")
        losses = []
        for _ in range(self._tuning_steps):
            self._optimiser.zero_grad(set_to_none=True)
            loss = marginal_entropy(self._mixed(augmix(image, self._copies, rng), e))
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            losses.append(float(loss.detach()))
        return losses

    def _mixed(self, images: Images, e: float) -> torch.Tensor:
        features = self._network.features(to_tensor(images))
        mixed: torch.Tensor = e * self._network.head(features) + (1 - e) * self._personal(features)
        return mixed


def _as_module(head: LinearHead) -> nn.Linear:
    arrays = {"weight": head.weight} if head.bias is None else {"weight": head.weight, "bias": head.bias}
    module: nn.Linear = skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, head.dimensions, head.classes, bias=head.bias is not None
    )
    load_arrays(module, arrays)
    return module
