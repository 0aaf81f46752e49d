"""FedRoD at test time: the global head's logits, corrected by the private head's."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.errors import InputError
from btfl.methods.base import Adapter, Floats
from btfl.runs.client import DeployedClient


class FedRoD(Adapter):
    """The sum of the balanced global head and a private head that was trained to correct it."""

    recipe: ClassVar[str] = "balanced"
    paper: ClassVar[str] = "Chen and Chao, ICLR 2022"
    summary: ClassVar[str] = "the balanced global head's logits plus a private head's"

    def __init__(self, client: DeployedClient) -> None:
        super().__init__(client)
        statistics, glob = client.bundle.statistics, client.bundle.global_head
        if "rod_head.weight" not in statistics:
            raise InputError("this client keeps no FedRoD head; train it with the recipe 'balanced'")
        private = LinearHead(statistics["rod_head.weight"], statistics.get("rod_head.bias"))
        if private.weight.shape != glob.weight.shape:
            raise InputError(f"FedRoD's head is {private.weight.shape}, but the global head {glob.weight.shape}")
        # The sum of two linear heads is one.
        biases = [head.bias for head in (glob, private) if head.bias is not None]
        self._sum = LinearHead(glob.weight + private.weight, np.sum(biases, axis=0) if biases else None)

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the sum's probabilities."""
        return np.exp(log_softmax(self._sum.logits(np.asarray(batch, dtype=np.float64))))
