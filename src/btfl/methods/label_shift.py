"""Label shift: the classes come in other shares than in training, and look as they did.

Then the head's probabilities need one factor a class, the share in the stream over that in training. EM (Saerens et
al., 2002; Alexandari et al., 2020) and BBSE (Lipton et al., 2018) find the stream's shares from unlabelled samples.
Both take the global head for calibrated: its probabilities are trusted as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import probabilities
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import GREEN, Card
from btfl.methods.state import check_keys, check_sums, count, numbers

MOST_STEPS, TOLERANCE = 200, 1e-6
_LEAST_SHARE = 0.01  # of a class's share in training: no class is ever ruled out for good


@dataclass(frozen=True)
class LabelShiftSettings(Settings):
    """How the stream's class shares are estimated."""

    window: int = knob(500, "How many of the last samples the estimate is made of.", least=1)
    prior: float = knob(10.0, "Strength of the shares in training, as a number of samples.", above=0)


@dataclass(frozen=True)
class EmSettings(LabelShiftSettings):
    """How EM estimates."""

    title: ClassVar[str] = "EM"


@dataclass(frozen=True)
class BbseSettings(LabelShiftSettings):
    """How BBSE estimates."""

    title: ClassVar[str] = "BBSE"


class LabelShift(Method):
    """Corrects the global head by an estimate of the class shares among the last ``window`` samples.

    The shares in training are everyone's class counts. With few samples the estimate stays near them, as if
    ``prior`` samples with these shares had come before the stream. A sample counts towards the estimate that corrects
    it; samples are taken one at a time, so the answers do not depend on how the stream is cut.
    """

    needs: ClassVar[tuple[str, ...]] = ("global_class_counts",)
    settings: LabelShiftSettings

    shares: Floats
    """The estimate after the last sample."""

    def __init__(
        self, client: Client | ClientBundle, settings: LabelShiftSettings | None = None, **changes: Any
    ) -> None:
        super().__init__(client, settings, **changes)
        counts = self.bundle.statistics["global_class_counts"] + 1.0  # a class that nobody has is still possible
        self.source: Floats = counts / counts.sum()
        self._recent = np.empty((self.settings.window, self.bundle.classes))  # the oldest is written over
        self.reset()

    @abstractmethod
    def estimate(self, recent: Floats) -> Floats:
        """Return the class shares among (n, classes) predictions of the global head."""

    def predict(self, batch: ArrayLike) -> Floats:
        """Update the estimate with each sample of (samples, dimensions) features, and correct its probabilities."""
        answers = []
        for row in probabilities(self.bundle.global_head, as_features(batch, self.bundle.dimensions)):
            self._recent[self._seen % len(self._recent)] = row
            self._seen += 1
            self.shares = self.estimate(self._recent[: self._seen])
            corrected = row * self.shares / self.source
            answers.append(corrected / corrected.sum())
        return np.stack(answers)

    @property
    def state(self) -> dict[str, Any]:
        """The window of predictions (the oldest is written over), how many came, and the estimate."""
        return {"recent": self._recent[: self._seen].tolist(), "seen": self._seen, "shares": self.shares.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, ("recent", "seen", "shares"))
        (window, classes), seen = self._recent.shape, count("seen", state["seen"])
        recent = numbers("recent", state["recent"], (min(seen, window), classes), 0.0, 1.0)
        shares = numbers("shares", state["shares"], (classes,), 0.0, 1.0)
        if (recent < 0).any() or (shares <= 0).any():
            raise InputError("the state is out of range: recent must not be negative, and shares must be above 0")
        check_sums("each row of recent", recent)
        check_sums("shares", shares)
        self._recent[: len(recent)] = recent
        self._seen, self.shares, self.found = seen, shares, None

    def reset(self) -> None:
        """Forget the stream."""
        super().reset()
        self._seen, self.shares = 0, self.source


class Em(LabelShift):
    """The shares under which the predictions are likeliest, found by expectation maximisation.

    In turn, the samples' probabilities are corrected by the shares, and the shares become their mean; it starts from
    the estimate before the last sample. ``prior`` is the strength of a Dirichlet prior around the shares in training.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "em",
            "EM",
            "the global head, corrected for class shares found by expectation maximisation",
            "Saerens et al., 2002; Alexandari et al., ICML 2020",
            GREEN,
            "p",
            "dashed",
        ),
    )
    settings_class: ClassVar[type[Settings]] = EmSettings

    def estimate(self, recent: Floats) -> Floats:
        """Return the likeliest shares."""
        likelihoods = recent / self.source  # up to a factor for each sample, which cancels
        shares, prior = self.shares, self.settings.prior
        for _ in range(MOST_STEPS):
            # Responsibilities added up, without an (n, classes) array of them.
            expected = shares * ((1.0 / (likelihoods @ shares)) @ likelihoods)
            after = (expected + prior * self.source) / (len(recent) + prior)
            moved = np.abs(after - shares).max()
            shares = after
            if moved < TOLERANCE:
                break
        return shares


class Bbse(LabelShift):
    """The shares that explain the mean prediction, given what the head predicts for samples of each class.

    C holds, in column y, the head's mean probabilities for validation samples of class y. The shares minimise
    n |C shares - mean|^2 + prior |shares - those in training|^2 and are then cut off near zero.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "bbse",
            "BBSE",
            "the global head, corrected for class shares found from its confusions",
            "Lipton et al., ICML 2018; Azizzadenesheli et al., ICLR 2019",
            GREEN,
            "p open",
            "dotted",
        ),
    )
    settings_class: ClassVar[type[Settings]] = BbseSettings
    needs: ClassVar[tuple[str, ...]] = (*LabelShift.needs, "validation_features", "validation_labels")

    def __init__(
        self, client: Client | ClientBundle, settings: LabelShiftSettings | None = None, **changes: Any
    ) -> None:
        super().__init__(client, settings, **changes)
        statistics = self.bundle.statistics
        believed = probabilities(self.bundle.global_head, statistics["validation_features"])
        self.confusion = confusion(believed, statistics["validation_labels"], self.settings.prior)
        # Decomposed once: the weight of the prior changes with every sample, and a solve for each would be slow.
        self._scales, self._axes = np.linalg.eigh(self.confusion.T @ self.confusion)

    def estimate(self, recent: Floats) -> Floats:
        """Return the shares that fit best, kept near those in training and above zero."""
        strength = self.settings.prior / len(recent)
        wanted = self.confusion.T @ recent.mean(axis=0) + strength * self.source
        shares = self._axes @ ((self._axes.T @ wanted) / (self._scales + strength))
        shares = np.maximum(shares, _LEAST_SHARE * self.source)
        return np.asarray(shares / shares.sum())


def confusion(believed: Floats, labels: NDArray[np.int64], prior: float) -> Floats:
    """Return C, (classes, classes): in column y the mean of (n, classes) predictions for samples of class y.

    A client has few samples of some classes and none of others. Each column is therefore led, as if by ``prior`` more
    samples, towards a head that gives every class the same mean probability of being recognised, and shares the rest
    out evenly.
    """
    classes = believed.shape[1]
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros((classes, classes))
    np.add.at(sums.T, labels, believed)
    recognised = believed[np.arange(len(labels)), labels].mean() if len(labels) else 1.0
    typical = np.full((classes, classes), (1.0 - recognised) / (classes - 1))
    np.fill_diagonal(typical, recognised)
    return np.asarray((sums + prior * typical) / (counts + prior))
