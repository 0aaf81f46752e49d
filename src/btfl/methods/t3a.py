"""T3A (Iwasawa and Matsuo, NeurIPS 2021): move each class's prototype to where the stream's surest samples are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.core.softmax import entropy, log_softmax
from btfl.methods.base import Adapter, Floats
from btfl.methods.checks import check_count
from btfl.runs.client import DeployedClient


class T3A(Adapter):
    """Replaces the global head's rows by means of the features it was surest of, ``supports`` for each class.

    A class's supports are features of length 1 that the head took for that class, its own row being the first. They
    are the ones of the lowest entropy under the head so far. The prototype is their mean, brought to length 1, and the
    answer is the softmax of the products of feature and prototypes. A sample becomes a support before it is answered,
    and samples are taken one at a time, so the answers do not depend on how the stream is cut.
    """

    paper: ClassVar[str] = "Iwasawa and Matsuo, NeurIPS 2021"
    summary: ClassVar[str] = "prototypes from the stream's surest samples in place of the global head's rows"

    def __init__(self, client: DeployedClient, supports: int = 20) -> None:
        check_count("t3a", "supports", supports)
        super().__init__(client)
        self._head = client.bundle.global_head
        self._most = supports
        self._rows = unit(self._head.weight)
        self._row_entropies = entropy(log_softmax(self._head.logits(self._head.weight)))
        self.reset()

    def reset(self) -> None:
        """Go back to the head's own rows."""
        self._supports = [row[None] for row in self._rows]
        self._entropies = [value[None] for value in self._row_entropies]
        self._prototypes = self._rows.copy()

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Take in each sample, then give its probabilities."""
        features = np.asarray(batch, dtype=np.float64)
        believed = log_softmax(self._head.logits(features))
        logits = np.empty_like(believed)
        for i, (feature, label, doubt) in enumerate(zip(features, believed.argmax(1), entropy(believed), strict=True)):
            self._take_in(feature, int(label), doubt)
            logits[i] = self._prototypes @ feature
        return np.exp(log_softmax(logits))

    def _take_in(self, feature: Floats, label: int, doubt: np.float64) -> None:
        supports = np.concatenate([self._supports[label], unit(feature[None])])
        entropies = np.append(self._entropies[label], doubt)
        surest = np.sort(np.argsort(entropies, kind="stable")[: self._most])
        self._supports[label], self._entropies[label] = supports[surest], entropies[surest]
        self._prototypes[label] = unit(supports[surest].mean(0)[None])[0]


def unit(vectors: Floats) -> Floats:
    """Return the rows at length 1; a row of zeros stays."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))
