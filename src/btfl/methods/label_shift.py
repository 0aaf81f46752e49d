"""Label shift: the classes come in other shares than in training, and look as they did.

Then the head's probabilities need one factor a class, the share in the stream over that in training. EM (Saerens et
al., 2002; Alexandari et al., 2020) and BBSE (Lipton et al., 2018) find the stream's shares from unlabelled samples.
Both take the global head for calibrated: its probabilities are trusted as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.methods.base import Adapter, Floats
from btfl.methods.checks import check_count, check_positive
from btfl.methods.heads import probabilities
from btfl.runs.client import DeployedClient

MOST_STEPS, TOLERANCE = 200, 1e-6
_LEAST_SHARE = 0.01  # of a class's share in training: no class is ever ruled out for good


class LabelShift(Adapter):
    """Corrects the global head by an estimate of the class shares among the last ``window`` samples.

    The shares in training are everyone's class counts. With few samples the estimate stays near them, as if
    ``prior`` samples with these shares had come before the stream. A sample counts towards the estimate that corrects
    it; samples are taken one at a time, so the answers do not depend on how the stream is cut.
    """

    def __init__(self, client: DeployedClient, window: int = 500, prior: float = 10.0) -> None:
        name = type(self).__name__.lower()
        check_count(name, "window", window)
        check_positive(name, "prior", prior)
        super().__init__(client)
        self._prior = prior
        counts = client.bundle.statistics["global_class_counts"] + 1.0  # a class that nobody has is still possible
        self.source: Floats = counts / counts.sum()
        self._recent = np.empty((window, client.bundle.classes))  # the oldest is written over
        self._seen = 0
        self.shares = self.source
        """The estimate after the last sample."""

    @abstractmethod
    def estimate(self, recent: Floats) -> Floats:
        """Return the class shares among (n, classes) predictions of the global head."""

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Bring the estimate up to date with each sample, and correct its probabilities."""
        answers = []
        for row in probabilities(self.client.bundle.global_head, batch):
            self._recent[self._seen % len(self._recent)] = row
            self._seen += 1
            self.shares = self.estimate(self._recent[: self._seen])
            corrected = row * self.shares / self.source
            answers.append(corrected / corrected.sum())
        return np.stack(answers)

    def reset(self) -> None:
        """Forget the stream."""
        self._seen, self.shares = 0, self.source


class Em(LabelShift):
    """The shares under which the predictions are likeliest, found by expectation maximisation.

    In turn, the samples' probabilities are corrected by the shares, and the shares become their mean; it starts from
    the estimate before the last sample. ``prior`` is the strength of a Dirichlet prior around the shares in training.
    """

    paper: ClassVar[str] = "Saerens et al., 2002; Alexandari et al., ICML 2020"
    summary: ClassVar[str] = "the global head, corrected for class shares found by expectation maximisation"

    def estimate(self, recent: Floats) -> Floats:
        """Return the likeliest shares."""
        likelihoods = recent / self.source  # up to a factor for each sample, which cancels
        shares: Floats = self.shares
        for _ in range(MOST_STEPS):
            # Responsibilities added up, without an (n, classes) array of them.
            expected = shares * ((1.0 / (likelihoods @ shares)) @ likelihoods)
            after = (expected + self._prior * self.source) / (len(recent) + self._prior)
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

    paper: ClassVar[str] = "Lipton et al., ICML 2018; Azizzadenesheli et al., ICLR 2019"
    summary: ClassVar[str] = "the global head, corrected for class shares found from its confusions"

    def __init__(self, client: DeployedClient, window: int = 500, prior: float = 10.0) -> None:
        super().__init__(client, window, prior)
        statistics = client.bundle.statistics
        believed = probabilities(client.bundle.global_head, statistics["validation_features"])
        self.confusion = confusion(believed, statistics["validation_labels"], prior)
        # Decomposed once: the weight of the prior changes with every sample, and a solve for each would be slow.
        self._scales, self._axes = np.linalg.eigh(self.confusion.T @ self.confusion)

    def estimate(self, recent: Floats) -> Floats:
        """Return the shares that fit best, kept near those in training and above zero."""
        strength = self._prior / len(recent)
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
