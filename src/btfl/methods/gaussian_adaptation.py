"""ADAPT (Zhang et al., NeurIPS 2025): class means re-estimated on the stream, by Gaussians, without gradients.

Of each predicted class a bank keeps the samples of the lowest entropy. With p_i the head's probability of that class,

    mu_k = a * (sum p_i z_i / sum p_i over the bank of k) + (1 - a) * mu_k0,    S = covariance of z - mu over all banks,
    S^-1 = d ((n - 1) S + tr(S) I)^-1,                    g_k(z) = mu_k' S^-1 z - mu_k' S^-1 mu_k / 2,

and the answer is the head's, times the Gaussians' to the power of 1 / scale, times a pull towards the classes of
banked samples that point the same way: p_k(z) * softmax(g)_k^(1/scale) * exp(sum over the bank of k of cos(z, z_i)
p_i / 2n). Written for CLIP, whose class texts are the first means mu_k0; here they are everyone's class means, from the
sums that clients upload, and the head is one of the two that a client has. DOTA and StatA are relatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.generative import everyones_sums
from btfl.core.softmax import entropy, log_softmax
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import VIOLET, Card
from btfl.methods.state import check_keys, numbers

Base = Literal["global", "personal"]


@dataclass(frozen=True)
class AdaptSettings(Settings):
    """How ADAPT remembers and mixes."""

    title: ClassVar[str] = "ADAPT"

    base: Base = knob("global", "The head that guesses first, and whose answer is multiplied.")
    bank: int = knob(16, "How many of its surest samples a class keeps.", least=1)
    alpha: float = knob(0.9, "Weight of the bank in a class mean, against everyone's mean.", least=0, most=1)
    scale: float = knob(100.0, "How weak the Gaussians are beside the head; the program has 10 to 100.", above=0)


class Adapt(Method):
    """The head's answer times that of Gaussians about class means that follow the stream's surest samples.

    A sample may enter its bank before it is answered, as in the authors' program. Samples are taken one at a time, so
    the answers do not depend on how the stream is cut.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "adapt",
            "ADAPT",
            "the global head times Gaussians about class means re-estimated on the stream",
            "Zhang et al., NeurIPS 2025",
            VIOLET,
            "> dotted",
        ),
        Card(
            "adapt-personal",
            "ADAPT (personal head)",
            "the personal head times Gaussians about class means re-estimated on the stream",
            colour=VIOLET,
            marker="d dotted",
            line="dashed",
            settings={"base": "personal"},
        ),
    )
    settings_class: ClassVar[type[Settings]] = AdaptSettings
    needs: ClassVar[tuple[str, ...]] = ("global_class_counts", "global_class_feature_sums", "global_feature_scatter")
    settings: AdaptSettings
    _features: Floats
    _labels: NDArray[np.int64]
    _doubts: Floats
    _trust: Floats

    def __init__(self, client: Client | ClientBundle, settings: AdaptSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._head = self.bundle.global_head if self.settings.base == "global" else self.bundle.personal_head
        sums = everyones_sums(self.bundle)
        mean = sums.sums.sum(axis=0) / sums.counts.sum()  # stands for a class that nobody has
        self.first_means = np.where(sums.counts[:, None] > 0, sums.sums / np.maximum(sums.counts, 1)[:, None], mean)
        self.reset()

    def predict(self, batch: ArrayLike) -> Floats:
        """Let each sample of (samples, dimensions) features into a bank or not, then return its probabilities."""
        features = as_features(batch, self.bundle.dimensions)
        believed = log_softmax(self._head.logits(features))
        answers = np.empty_like(believed)
        for i, (feature, guess, doubt) in enumerate(zip(features, believed, entropy(believed), strict=True)):
            if self._enter(feature, guess, float(doubt)):
                self._estimate()
            answers[i] = guess + log_softmax(self._weights @ feature + self._bias) / self.settings.scale
            answers[i] += self._alike(feature)
        return np.exp(log_softmax(answers))

    def _enter(self, feature: Floats, guess: Floats, doubt: float) -> bool:
        """Put a sample into the bank of its class if there is room, or in place of the one of the highest entropy."""
        label = int(guess.argmax())
        same = np.flatnonzero(self._labels == label)
        if len(same) >= self.settings.bank:
            worst = same[self._doubts[same].argmax()]
            if doubt >= self._doubts[worst]:
                return False
            kept = np.delete(np.arange(len(self._labels)), worst)
        else:
            kept = np.arange(len(self._labels))
        self._features = np.concatenate([self._features[kept], feature[None]])
        self._labels = np.append(self._labels[kept], label)
        self._doubts = np.append(self._doubts[kept], doubt)
        self._trust = np.append(self._trust[kept], np.exp(guess[label]))
        return True

    def _estimate(self) -> None:
        """Make means, covariance and scores of what is in the banks."""
        shares = np.zeros((self.bundle.classes, len(self._labels)))
        shares[self._labels, np.arange(len(self._labels))] = self._trust
        has = shares.any(axis=1)
        own = (shares[has] / shares[has].sum(axis=1, keepdims=True)) @ self._features
        self.means = self.first_means.copy()
        self.means[has] = self.settings.alpha * own + (1 - self.settings.alpha) * self.first_means[has]
        self._weights = _over_ridge(self._features - self.means[self._labels], self.means)
        self._bias = -0.5 * (self._weights * self.means).sum(axis=1)

    def _alike(self, feature: Floats) -> Floats:
        """Return the pull towards the classes of banked samples that point the same way."""
        lengths = np.linalg.norm(self._features, axis=1) * np.linalg.norm(feature)
        cosines = (self._features @ feature) / np.maximum(lengths, 1e-12)
        pull = np.bincount(self._labels, weights=cosines * self._trust, minlength=self.bundle.classes)
        return np.asarray(pull / (2 * len(self._labels)))

    @property
    def state(self) -> dict[str, Any]:
        """The banks in the order their samples came: features, classes, entropies and probabilities."""
        arrays = {"features": self._features, "labels": self._labels, "doubts": self._doubts, "trust": self._trust}
        return {name: array.tolist() for name, array in arrays.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, ("features", "labels", "doubts", "trust"))
        if not all(isinstance(value, list) and len(value) == len(state["features"]) for value in state.values()):
            raise InputError("features, labels, doubts and trust in the state must be lists of the same length")
        count = len(state["features"])
        features = numbers("features", state["features"], (count, self.bundle.dimensions))
        labels, doubts, trust = (numbers(name, state[name], (count,)) for name in ("labels", "doubts", "trust"))
        known = np.isin(labels, np.arange(self.bundle.classes)).all() and (doubts >= 0).all() and (trust > 0).all()
        if not known or np.bincount(labels.astype(np.int64), minlength=1).max() > self.settings.bank:
            raise InputError("the state is out of range: a class that is none, or more samples than the setting bank")
        self._features, self._labels, self._doubts, self._trust = features, labels.astype(np.int64), doubts, trust
        self.found, self.means = None, self.first_means
        if count:
            self._estimate()

    def reset(self) -> None:
        """Empty the banks."""
        super().reset()
        self._features, self._labels = np.empty((0, self.bundle.dimensions)), np.empty(0, np.int64)
        self._doubts, self._trust = np.empty(0), np.empty(0)
        self.means = self.first_means


def _over_ridge(residuals: Floats, means: Floats) -> Floats:
    """Return means S^-1, (classes, dimensions), where S is the residuals' covariance with the ridge of the paper."""
    count, dimensions = residuals.shape
    if count == 1:
        return means.copy()  # the covariance of one sample is taken to be I
    centred = residuals - residuals.mean(axis=0)
    trace = float((centred * centred).sum()) / (count - 1)
    if trace == 0:  # the same sample again and again says nothing about what is far
        return np.zeros_like(means)
    if 2 * count < dimensions:  # Woodbury's identity: few samples leave most directions to the ridge
        inner = np.linalg.solve(centred @ centred.T + trace * np.eye(count), centred @ means.T)
        return np.asarray(dimensions * (means - (centred.T @ inner).T) / trace)
    ridge = centred.T @ centred + trace * np.eye(dimensions)
    return np.asarray(dimensions * np.linalg.solve(ridge, means.T).T)
