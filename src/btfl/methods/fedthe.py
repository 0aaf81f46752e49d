"""FedTHE (Jiang and Lin, ICLR 2023): for each sample, the mix of both heads that minimises

    lambda_s * L_EM(e) + (1 - lambda_s) * L_FA(e)

- L_EM is the entropy of softmax(e * global logits + (1 - e) * personal logits): which mix is surest?
- L_FA = e * ||z' - z_global|| + (1 - e) * ||z' - z_local||: whose training data does the sample look like? z_local and
  z_global are the mean training features of the client and of everyone; z' = beta * z + (1 - beta) * history, and the
  history is a moving average of the stream's features, history <- alpha * z + (1 - alpha) * history.
- lambda_s is the cosine of the two heads' probabilities: where they agree entropy decides, where not the features.

e is found as in the authors' program: Adam on two weights under a softmax, both beginning at 1, so that e begins at one
half; the learning rate is ten times that of training. What is mixed is logits. The two weights' gradients are opposite,
so one number moves for both, and every sample has its own Adam: its e does not depend on its neighbours in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearStack
from btfl.core.softmax import entropy, log_softmax
from btfl.knobs import Settings, knob
from btfl.methods.base import Brings, Client, Column, Floats, Method
from btfl.methods.card import SKY, Card
from btfl.methods.state import check_keys, numbers

_SMALLEST_GRADIENT = 1e-5  # of the two weights together; below it the authors' program stops
_DECAYS, _EPSILON = (0.9, 0.999), 1e-8  # Adam's usual ones


@dataclass(frozen=True, eq=False)
class Objective:
    """What FedTHE minimises, for n samples at once."""

    by_global: Floats
    """(n, classes) logits of the global head."""
    by_personal: Floats
    """(n, classes) logits of the personal head."""
    to_global: Floats
    """(n,) distance of z' to everyone's mean feature."""
    to_local: Floats
    """(n,) distance of z' to the client's own."""

    @cached_property
    def similarity(self) -> Floats:
        """lambda_s, the cosine of both heads' probabilities."""
        one, other = np.exp(log_softmax(self.by_global)), np.exp(log_softmax(self.by_personal))
        similarity: Floats = (one * other).sum(axis=1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))
        return similarity

    def mixed(self, e: Floats) -> Floats:
        """Return the mixed logits."""
        return e[:, None] * self.by_global + (1 - e[:, None]) * self.by_personal

    def value(self, e: Floats) -> Floats:
        """Return the objective of each sample."""
        alignment = e * self.to_global + (1 - e) * self.to_local
        return self.similarity * entropy(log_softmax(self.mixed(e))) + (1 - self.similarity) * alignment

    def slope(self, e: Floats) -> Floats:
        """Return its derivative by e; the entropy's is minus the covariance of log p and the heads' difference."""
        log_p = log_softmax(self.mixed(e))
        p, difference = np.exp(log_p), self.by_global - self.by_personal
        covariance: Floats = (p * log_p * difference).sum(axis=1)
        covariance -= (p * log_p).sum(axis=1) * (p * difference).sum(axis=1)
        return -self.similarity * covariance + (1 - self.similarity) * (self.to_global - self.to_local)


def minimise(objective: Objective, steps: int, learning_rate: float) -> Floats:
    """Return each sample's e after so many steps of Adam, or fewer where the gradient has vanished."""
    moved = np.zeros(len(objective.to_global))  # of the global weight from 1; the personal one moves the other way
    first, second = np.zeros_like(moved), np.zeros_like(moved)
    active = np.ones(len(moved), dtype=bool)
    for step in range(1, steps + 1):
        e = _share(moved)
        gradient = objective.slope(e) * e * (1 - e)
        active &= np.sqrt(2.0) * np.abs(gradient) >= _SMALLEST_GRADIENT
        if not active.any():
            break
        first = _DECAYS[0] * first + (1 - _DECAYS[0]) * gradient
        second = _DECAYS[1] * second + (1 - _DECAYS[1]) * gradient**2
        size = np.sqrt(second / (1 - _DECAYS[1] ** step)) + _EPSILON
        moved -= np.where(active, learning_rate * first / (1 - _DECAYS[0] ** step) / size, 0.0)
    return _share(moved)


def _share(moved: Floats) -> Floats:
    """The global weight's softmax, of 1 + moved and 1 - moved."""
    return 0.5 * (1 + np.tanh(moved))


@dataclass(frozen=True)
class FedTheSettings(Settings):
    """How FedTHE decides."""

    title: ClassVar[str] = "FedTHE"

    steps: int = knob(20, "Steps of Adam for each sample.", least=0)
    learning_rate: float = knob(0.1, "Adam's learning rate: ten times that of training.", above=0)
    alpha: float = knob(0.1, "Share of a sample in the moving average of features, the history.", least=0, most=1)
    beta: float = knob(0.1, "Share of the sample itself, beside the history, in z'.", least=0, most=1)
    history: Literal["paper", "release"] = knob(
        "paper", "Whether every sample enters the history, or not the first of a later batch (release)."
    )


class FedThe(Method):
    """Mixes the heads' logits so that the answer is sure and the features fit the head's training data.

    ``history="paper"``: every sample enters the moving average, so it does not matter how the stream is cut into
    batches. ``"release"``: the first sample of each batch but the stream's first does not enter it, as in the authors'
    program; at a batch of one the history is then the stream's first sample for ever.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedthe",
            "FedTHE",
            "mixes both heads' logits, by entropy where they agree and feature distance where not",
            "Jiang and Lin, ICLR 2023",
            SKY,
            "D",
        ),
        Card(
            "fedthe-release",
            "FedTHE (release)",
            colour=SKY,
            marker="D dotted",
            line="dotted",
            settings={"history": "release"},
        ),
        Card("fedthe-on-fedavg", "FedTHE on FedAvg", colour=SKY, marker="D open", line="dashdot", recipe="fedavg"),
    )
    recipe: ClassVar[str] = "balanced"
    enrols: ClassVar[Brings] = "samples"
    settings_class: ClassVar[type[Settings]] = FedTheSettings
    needs: ClassVar[tuple[str, ...]] = ("global_class_feature_sums", "global_class_counts", "train_features")
    columns: ClassVar[Mapping[str, Column]] = {
        "e": Column("weight of the global head"),
        "lambda_s": Column("how far the heads agree: the cosine of their probabilities"),
    }
    settings: FedTheSettings

    def __init__(self, client: Client | ClientBundle, settings: FedTheSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._global_mean, self._local_mean = _means(self.bundle)
        self._heads = LinearStack([self.bundle.global_head, self.bundle.personal_head])
        self._history: Floats | None = None

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the mixture's probabilities for (samples, dimensions) features."""
        objective = self._objective(as_features(batch, self.bundle.dimensions))
        e = minimise(objective, self.settings.steps, self.settings.learning_rate)
        self.found = e, objective.similarity
        return np.exp(log_softmax(objective.mixed(e)))

    def _objective(self, features: Floats) -> Objective:
        beta = self.settings.beta
        seen = beta * features + (1 - beta) * self._remember(features)
        by_global, by_personal = self._heads(features)
        to_global = np.linalg.norm(seen - self._global_mean, axis=1)
        return Objective(by_global, by_personal, to_global, np.linalg.norm(seen - self._local_mean, axis=1))

    def _remember(self, features: Floats) -> Floats:
        """Return the history as each sample finds it, itself included."""
        alpha, skips_first = self.settings.alpha, self.settings.history == "release"
        history = np.empty_like(features)
        for i, feature in enumerate(features):
            if self._history is None:
                self._history = feature.copy()
            elif i > 0 or not skips_first:
                self._history = alpha * feature + (1 - alpha) * self._history
            history[i] = self._history
        return history

    @property
    def state(self) -> dict[str, Any]:
        """The history of features; None before the first sample."""
        return {"history": None if self._history is None else self._history.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, ("history",))
        history = state["history"]
        self._history = None if history is None else numbers("history", history, (self.bundle.dimensions,))
        self.found = None

    def reset(self) -> None:
        """Forget the stream."""
        super().reset()
        self._history = None


def _means(bundle: ClientBundle) -> tuple[Floats, Floats]:
    """Return the mean training feature of everyone, each sample counting the same, and of the client."""
    total = np.asarray(bundle.statistics["global_class_feature_sums"], dtype=np.float64).sum(axis=0)
    everyone = total / np.asarray(bundle.statistics["global_class_counts"], dtype=np.float64).sum()
    return everyone, np.asarray(bundle.statistics["train_features"], dtype=np.float64).mean(axis=0)
