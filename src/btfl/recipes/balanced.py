"""Balanced softmax for the global model, and two private heads: one federation for FedRoD, FedTHE and FedTHE+.

Balanced softmax (Ren et al., NeurIPS 2020): the log of the client's class counts is added to the logits in the loss, so
that the label mix is explained by the counts and the model itself learns as if all classes were equally common. Both
FedRoD (Chen and Chao, ICLR 2022) and FedTHE (Jiang and Lin, ICLR 2023) train their global model so. They differ in
the head that stays with the client:

- FedTHE's is a classifier of its own, trained alone by plain cross-entropy, as FedAvg's personal head is here;
- FedRoD's is a correction, trained by plain cross-entropy of its logits added to the global ones. It starts at zero,
  where the sum is the global model.

Neither sends a gradient into the global model or leaves the client.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.models import Network
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.personal import private_head, to_private
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import Loss, plain_loss, train_head

ROD = "rod_head"


def balanced_loss(settings: TrainingSettings, counts: NDArray[np.int64]) -> Loss:
    """Cross-entropy of the logits plus log(counts + 1).

    The one is FedTHE's release's: without it a class the client has never seen would get minus infinity, and the
    client would train nothing at all about it; with it, such a class is pushed down a little.
    """
    plain = plain_loss(settings)
    shift = torch.from_numpy(np.log(counts + 1.0).astype(np.float32))

    def loss(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return plain(features, logits + shift, labels)

    return loss


class Balanced(FedAvg):
    """The global model trained with balanced softmax; FedTHE's personal head and FedRoD's private head."""

    name: ClassVar[str] = "balanced"
    grows_surer: ClassVar[bool] = True

    def loss(self, data: ClientData) -> Loss:
        """Return the balanced softmax for the client's label mix."""
        return balanced_loss(self.settings, np.bincount(data.train.labels, minlength=self.classes))

    def personalise(self, when: int | str, network: Network, private: Weights, data: ClientData) -> Weights:
        """Train both private heads, each in a pass of its own."""
        personal = super().personalise(when, network, private, data)
        rod = private_head(ROD, network.head, private, from_zero=True)
        epochs, settings = self.settings.personal_epochs, self.settings
        train_head(rod, network, data.train, epochs, settings, "rod", when, data.client, onto=network.head)
        return {**personal, **to_private(ROD, rod)}

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Measure what the test-time methods need; FedRoD's head goes to ``statistics`` as ``rod_head.weight``."""
        bundle = self.bundle(self.received(shared), private, data, everyone)
        rod = {key: array for key, array in private.items() if key.startswith(f"{ROD}.")}
        return ClientOutcome(replace(bundle, statistics={**bundle.statistics, **rod}))
