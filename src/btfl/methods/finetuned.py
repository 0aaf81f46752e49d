"""FedAvg+FT: the global model fine-tuned on the client's own data."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.core.softmax import log_softmax
from btfl.methods.base import Adapter, Floats, Takes
from btfl.models.forward import logits
from btfl.runs.client import DeployedClient


class FineTuned(Adapter):
    """The global model after one more epoch on the client's own data."""

    takes: ClassVar[Takes] = "images"
    paper: ClassVar[str] = "Wang et al., 2019 (fine-tuning)"
    summary: ClassVar[str] = "the global model, fine-tuned locally for an epoch"

    def __init__(self, client: DeployedClient) -> None:
        super().__init__(client)
        self._network = client.network("finetuned")

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the fine-tuned model's probabilities."""
        return np.exp(log_softmax(logits(self._network, batch).astype(np.float64)))
