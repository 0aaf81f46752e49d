"""kNN-Per (Marfoq et al., ICML 2022): the global model, mixed with a memory of the client's own training features.

    p(y|x) = mix * p_knn(y|x) + (1 - mix) * p_global(y|x)

p_knn adds up exp(-||z - z_i|| / scale) over the k nearest training features z_i, by label, and normalises.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.methods.base import Adapter, Floats
from btfl.methods.checks import check_count, check_positive, check_share
from btfl.methods.heads import probabilities
from btfl.runs.client import DeployedClient

MIXES = tuple(tenths / 10 for tenths in range(10))
_CHUNK = 256


class KnnPer(Adapter):
    """Mixes the global head with the k nearest of the client's training features.

    The mix is the one of 0.0, 0.1, ... 0.9 with the best accuracy on the client's validation part; of several equally
    good, the least, which stays closest to the global model. Without validation samples it is 0.
    """

    paper: ClassVar[str] = "Marfoq et al., ICML 2022"
    summary: ClassVar[str] = "the global model mixed with nearest neighbours among the client's training features"

    def __init__(self, client: DeployedClient, k: int = 10, scale: float = 1.0, mix: float | None = None) -> None:
        super().__init__(client)
        check_count("knn-per", "k", k)
        check_positive("knn-per", "scale", scale)
        check_share("knn-per", "mix", 0 if mix is None else mix)
        statistics = client.bundle.statistics
        if "train_features" not in statistics:
            raise InputError("this client has not kept its training features, which kNN-Per remembers")
        self._features = np.asarray(statistics["train_features"], dtype=np.float64)
        self._labels = np.asarray(statistics["train_labels"])
        self._k, self._scale = k, scale
        self.mix = self._search() if mix is None else float(mix)

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the mixture's probabilities."""
        by_model = probabilities(self.client.bundle.global_head, batch)
        if self.mix == 0:
            return by_model
        return self.mix * self._by_neighbours(batch) + (1 - self.mix) * by_model

    def _by_neighbours(self, batch: NDArray[Any]) -> Floats:
        classes = self.client.bundle.classes
        return nearest_labels(self._features, self._labels, classes, batch, self._k, self._scale)

    def _search(self) -> float:
        statistics = self.client.bundle.statistics
        features, labels = statistics["validation_features"], statistics["validation_labels"]
        if not len(labels):
            return 0.0
        by_model, by_memory = probabilities(self.client.bundle.global_head, features), self._by_neighbours(features)
        right = [((mix * by_memory + (1 - mix) * by_model).argmax(axis=1) == labels).mean() for mix in MIXES]
        return MIXES[int(np.argmax(right))]


def nearest_labels(
    known: Floats, labels: NDArray[Any], classes: int, queries: NDArray[Any], k: int, scale: float
) -> Floats:
    """Return the label shares of each query's k nearest known features (all of them, if there are fewer than k)."""
    k = min(k, len(known))
    squares = (known**2).sum(axis=1)
    result = np.zeros((len(queries), classes))
    for start in range(0, len(queries), _CHUNK):
        chunk = np.asarray(queries[start : start + _CHUNK], dtype=np.float64)
        # The query's own square is the same for all it is compared with, so it is left out of the ranking.
        nearest = np.argpartition(squares - 2 * chunk @ known.T, k - 1, axis=1)[:, :k]
        distances = np.linalg.norm(known[nearest] - chunk[:, None], axis=2)
        # Only ratios matter: taken from the nearest, they cannot all underflow.
        weights = np.exp(-(distances - distances.min(axis=1, keepdims=True)) / scale)
        rows = np.arange(start, start + len(chunk))[:, None]
        np.add.at(result, (rows, labels[nearest]), weights)
    shares: Floats = result / result.sum(axis=1, keepdims=True)
    return shares
