"""The heads as they are: the two experts that every mixing method starts from, and the ceiling of all mixing."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.methods.base import Adapter, Floats
from btfl.runs.client import DeployedClient


def probabilities(head: LinearHead, features: NDArray[Any]) -> Floats:
    """Return a head's softmax."""
    return np.exp(log_softmax(head.logits(np.asarray(features, dtype=np.float64))))


class GlobalHead(Adapter):
    """The global model, as it is."""

    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"
    summary: ClassVar[str] = "the global model, as it is"

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the global head's probabilities."""
        return probabilities(self.client.bundle.global_head, batch)


class PersonalHead(Adapter):
    """The personal head alone, on the shared extractor."""

    paper: ClassVar[str] = "Zhou and Liu, KDD 2025 (a part of BTFL)"
    summary: ClassVar[str] = "the personal head alone"

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the personal head's probabilities."""
        return probabilities(self.client.bundle.personal_head, batch)


class Oracle(Adapter):
    """The better head for each sample, chosen by looking at the answer: no method, but the ceiling of all mixing."""

    summary: ClassVar[str] = "knows the answer and picks the better head: the ceiling of all that mix two heads"

    def __init__(self, client: DeployedClient) -> None:
        super().__init__(client)
        self._answers: NDArray[np.int64] | None = None
        self._trust_global: Floats = np.empty(0)

    def tell(self, labels: NDArray[np.int64]) -> None:
        """Say the answers to the next batch; the benchmark does this for the oracle and for nothing else."""
        self._answers = labels

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Give, for each sample, the probabilities of the head that finds its answer likelier."""
        assert self._answers is not None, "the oracle must be told the answers first"
        by_global = probabilities(self.client.bundle.global_head, batch)
        by_personal = probabilities(self.client.bundle.personal_head, batch)
        rows = np.arange(len(batch))
        right_global = by_global.argmax(1) == self._answers
        right_personal = by_personal.argmax(1) == self._answers
        likelier = by_global[rows, self._answers] > by_personal[rows, self._answers]
        chosen = np.where(right_global == right_personal, likelier, right_global)
        self._answers, self._trust_global = None, chosen.astype(np.float64)
        return np.where(chosen[:, None], by_global, by_personal)

    @property
    def trace(self) -> dict[str, NDArray[Any]]:
        """Which head was chosen."""
        return {"e": self._trust_global}
