"""CCVR (Luo et al., NeurIPS 2021): the head is trained again on virtual features drawn from class Gaussians.

When training ends, clients upload class counts, means and covariances of their features. Virtual features are drawn
from each class's Gaussian, the same number of each, and the classifier is trained on them. The extractor stays.

Clients here add up one second moment for all classes, so every class is drawn with the covariance that all have in
common, where CCVR has one of each class. With such Gaussians the best head is known (it is FedCGS's with equal
shares), and training tends to it as more features are drawn.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy  # loads scipy.optimize when it is first used
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.generative import NEEDED, everyones_sums
from btfl.core.heads import LinearHead, probabilities
from btfl.core.softmax import log_softmax
from btfl.core.sums import ClassSums
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import OCHRE, Card
from btfl.randomness import generator

_KNOWN: dict[tuple[str, CcvrSettings], LinearHead] = {}


@dataclass(frozen=True)
class CcvrSettings(Settings):
    """How CCVR draws and trains."""

    title: ClassVar[str] = "CCVR"

    virtual: int = knob(1000, "Virtual features drawn of each class.", least=1)
    steps: int = knob(100, "Most steps of L-BFGS, from the trained global head.", least=1)
    seed: int = knob(0, "Random seed of the draws; every client has the same.")


class Ccvr(Method):
    """The global head after training on virtual features of all classes alike."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "ccvr",
            "CCVR",
            "the global head, trained again on features drawn from class Gaussians of everyone's sums",
            "Luo et al., NeurIPS 2021",
            OCHRE,
            "d open",
        ),
    )
    settings_class: ClassVar[type[Settings]] = CcvrSettings
    needs: ClassVar[tuple[str, ...]] = NEEDED
    trained_later: ClassVar[bool] = True
    settings: CcvrSettings

    def __init__(self, client: Client | ClientBundle, settings: CcvrSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self.head = calibrated(self.bundle.global_head, everyones_sums(self.bundle), self.settings)

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the calibrated head's probabilities for (samples, dimensions) features."""
        return probabilities(self.head, as_features(batch, self.bundle.dimensions))


def calibrated(head: LinearHead, sums: ClassSums, settings: CcvrSettings) -> LinearHead:
    """Return the head after training on virtual features; once for all clients of a federation, who have the same."""
    parts = [*sums, head.weight, np.zeros(0) if head.bias is None else head.bias]
    key = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest(), settings
    if key not in _KNOWN:
        _KNOWN.clear()  # one federation is at work at a time
        drawn = virtual_features(sums, settings.virtual, settings.seed)
        _KNOWN[key] = retrained(head, *drawn, settings.steps)
    return _KNOWN[key]


def virtual_features(sums: ClassSums, count: int, seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return (count * classes, dimensions) features and their labels; a class that nobody has is not drawn."""
    classes = np.flatnonzero(sums.counts)
    means = sums.sums[classes] / sums.counts[classes, None]
    covariance = (sums.scatter - (means.T * sums.counts[classes]) @ means) / sums.counts.sum()
    scales, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    noise = generator(seed, "ccvr").standard_normal((len(classes) * count, len(covariance)))
    root = axes * np.sqrt(np.maximum(scales, 0.0))  # rounding may leave a scale just below zero
    return np.repeat(means, count, axis=0) + noise @ root.T, np.repeat(classes, count)


def retrained(head: LinearHead, features: Floats, labels: NDArray[np.int64], steps: int) -> LinearHead:
    """Return the head after so many steps on the mean cross-entropy; it has a bias, even if it had none before."""
    classes, dimensions = head.weight.shape
    inputs = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    targets = np.eye(classes)[labels]
    first = np.column_stack([head.weight, np.zeros(classes) if head.bias is None else head.bias])

    def loss(flat: Floats) -> tuple[float, Floats]:
        logs = log_softmax(inputs @ flat.reshape(first.shape).T)
        gradient = (np.exp(logs) - targets).T @ inputs / len(inputs)
        return -float((targets * logs).sum()) / len(inputs), gradient.ravel()

    found = scipy.optimize.minimize(
        loss, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": steps}
    ).x.reshape(first.shape)
    return LinearHead(found[:, :dimensions], found[:, dimensions])
