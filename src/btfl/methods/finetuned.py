"""FedAvg+FT: the global model fine-tuned on the client's own data."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.core.bundle import ClientBundle
from btfl.core.softmax import log_softmax
from btfl.knobs import NoSettings
from btfl.methods.base import Client, Floats, Method, Takes
from btfl.methods.card import GREY, Card


class FineTuned(Method):
    """The global model after one more epoch on the client's own data."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedavg-ft",
            "FedAvg+FT",
            "the global model, fine-tuned locally for an epoch",
            "Wang et al., 2019 (fine-tuning)",
            GREY,
            "s open",
            "dashed",
        ),
    )
    takes: ClassVar[Takes] = "images"
    trained_later: ClassVar[bool] = True

    def __init__(self, client: Client | ClientBundle, settings: NoSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._network = self.client.network("finetuned")

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the fine-tuned model's probabilities for (samples, height, width, channels) images."""
        from btfl.models.forward import logits

        return np.exp(log_softmax(logits(self._network, np.ascontiguousarray(batch)).astype(np.float64)))
