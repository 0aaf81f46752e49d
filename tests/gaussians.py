"""A world whose exact posterior is a linear head: classes are normal distributions about known means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl import ClientBundle, Summary
from btfl.core.heads import LinearHead

MEANS = np.array([[1.2, 0.0], [-0.6, 1.0], [-0.6, -1.0]])
EVEN = np.full(3, 1 / 3)
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """Three classes in the plane, a client with shares of its own, and others with the rest."""

    means: Floats = field(default_factory=lambda: MEANS)
    own: Floats = field(default_factory=lambda: np.array([0.7, 0.2, 0.1]))
    others: Floats = field(default_factory=lambda: EVEN)
    spread: float = 1.0
    samples: int = 600
    shift: float = 0.0
    """How far the client's own features lie from where everyone's do, in the first dimension."""

    def sample(self, shares: Any, count: int, seed: int, shift: float = 0.0) -> tuple[Floats, Labels]:
        """Draw features and labels."""
        rng = np.random.default_rng(seed)
        labels = rng.choice(len(self.means), size=count, p=np.asarray(shares))
        offset = np.eye(1, self.means.shape[1])[0] * shift
        return rng.normal(self.means[labels] + offset, self.spread), labels

    def posterior(self, shares: Any) -> LinearHead:
        """The exact head under these shares."""
        bias = np.log(np.asarray(shares)) - (self.means**2).sum(1) / 2 / self.spread**2
        return LinearHead(self.means / self.spread**2, bias)

    def bundle(self, validation: int = 300, **heads: Any) -> ClientBundle:
        """What the client keeps; both heads are exact under everyone's and its own shares, unless others are given."""
        classes = len(self.means)
        features, labels = self.sample(self.own, self.samples, 1, self.shift)
        elsewhere = self.sample(self.others, 3 * self.samples, 2)
        mine, rest = Summary.of(features, labels, classes), Summary.of(*elsewhere, classes)
        everyone = (mine + rest).class_sums().counts
        chosen = {"global_head": self.posterior(everyone / everyone.sum()), "personal_head": self.posterior(self.own)}
        return ClientBundle.of(
            **{**chosen, **heads},
            own=mine,
            everyone=mine + rest,
            features=features,
            labels=labels,
            validation=self.sample(self.own, validation, 3, self.shift),
        )


def accuracy(method: Any, features: Floats, labels: Labels) -> float:
    """The share of samples that a method gets right."""
    return float((method.predict(features).argmax(1) == labels).mean())
