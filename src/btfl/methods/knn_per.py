"""kNN-Per (Marfoq et al., ICML 2022): the global model, mixed with a memory of the client's own training features.

    p(y|x) = mix * p_knn(y|x) + (1 - mix) * p_global(y|x)

p_knn adds up exp(-||z - z_i|| / scale) over the k nearest training features z_i, by label, and normalises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import probabilities
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import GREEN, Card

MIXES = tuple(tenths / 10 for tenths in range(10))
_CHUNK = 256


@dataclass(frozen=True)
class KnnPerSettings(Settings):
    """How kNN-Per mixes."""

    title: ClassVar[str] = "kNN-Per"

    k: int = knob(10, "How many nearest training features are asked.", least=1)
    scale: float = knob(1.0, "The distance at which a neighbour's weight has fallen by a factor of e.", above=0)
    mix: float | None = knob(
        None, "Weight of the neighbours; none: the best of 0.0, 0.1, ... 0.9 on the validation part.", least=0, most=1
    )


class KnnPer(Method):
    """Mixes the global head with the k nearest of the client's training features.

    The mix is the one of 0.0, 0.1, ... 0.9 with the best accuracy on the client's validation part; of several equally
    good, the least, which stays closest to the global model. Without validation samples it is 0.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "knn-per",
            "kNN-Per",
            "the global model mixed with nearest neighbours among the client's training features",
            "Marfoq et al., ICML 2022",
            GREEN,
            "P open",
        ),
    )
    settings_class: ClassVar[type[Settings]] = KnnPerSettings
    needs: ClassVar[tuple[str, ...]] = ("train_features", "train_labels")
    settings: KnnPerSettings

    def __init__(self, client: Client | ClientBundle, settings: KnnPerSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._features = self.bundle.statistic("train_features")
        self._labels = self.bundle.statistic("train_labels")
        self.mix = self._search() if self.settings.mix is None else float(self.settings.mix)

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the mixture's probabilities for (samples, dimensions) features."""
        features = as_features(batch, self.bundle.dimensions)
        by_model = probabilities(self.bundle.global_head, features)
        if self.mix == 0:
            return by_model
        return self.mix * self._by_neighbours(features) + (1 - self.mix) * by_model

    def _by_neighbours(self, features: Floats) -> Floats:
        chosen = self.settings
        return nearest_labels(self._features, self._labels, self.bundle.classes, features, chosen.k, chosen.scale)

    def _search(self) -> float:
        self.bundle.require("validation_features", "validation_labels", by="kNN-Per without a mix")
        features, labels = (self.bundle.statistic(f"validation_{name}") for name in ("features", "labels"))
        if not len(labels):
            return 0.0
        by_model, by_memory = probabilities(self.bundle.global_head, features), self._by_neighbours(features)
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
