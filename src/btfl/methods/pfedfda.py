"""pFedFDA (McLaughlin and Su, NeurIPS 2024): a Gaussian head for each client, between its own estimates and everyone's.

Class means and one covariance are interpolated, with a weight for each,

    mu = b_1 mu_own + (1 - b_1) mu_global,      S = b_2 S_own + (1 - b_2) S_global,

and the head is linear discriminant analysis under the client's own label shares: logits mu_k' S^-1 z - mu_k' S^-1
mu_k / 2 + log(pi_k + 1e-4), with S <- (1 - 1e-4) S + 1e-4 tr(S)/d I. The weights b in [0, 1]^2 minimise the
cross-entropy of such heads in two folds of the client's training features: own estimates from one fold, the loss on
the other; at most ten steps of L-BFGS from one half. A class that a client does not have keeps everyone's mean.

The authors' program adds ``1e-4 + I`` to the own covariance, which is 1e-4 to every entry and 1 to the diagonal,
where 1e-4 I was meant; and at test time it takes everyone's mean for classes of at most two samples. ``release``
repeats that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
from btfl.methods.card import BLUE, SKY, Card
from btfl.randomness import generator

Labels = NDArray[np.int64]
EPSILON = 1e-4
MEANS, COVARIANCE = "pfedfda.means", "pfedfda.covariance"
"""Everyone's estimates, as they travel with the network and stand among a bundle's statistics."""
_STEPS = 10


class Gaussians(NamedTuple):
    """Classes as normal distributions with one covariance."""

    means: Floats
    """(classes, dimensions)"""
    covariance: Floats
    """(dimensions, dimensions)"""


@dataclass(frozen=True)
class PFedFdaSettings(Settings):
    """How pFedFDA makes a client's head."""

    title: ClassVar[str] = "pFedFDA"

    release: bool = knob(False, "Whether the own covariance gets 1e-4 + I, as in the authors' program, not 1e-4 I.")
    seed: int = knob(0, "Random seed of the two folds.")


class PFedFda(Method):
    """The client's interpolated Gaussian head on the extractor that was trained under such heads."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "pfedfda",
            "pFedFDA",
            "class Gaussians between the client's own and everyone's, on an extractor trained for them",
            "McLaughlin and Su, NeurIPS 2024",
            BLUE,
            "6",
        ),
        Card(
            "pfedfda-release",
            "pFedFDA (release)",
            colour=BLUE,
            marker="6 open",
            line="dashed",
            settings={"release": True},
            recipe="pfedfda-release",
        ),
    )
    recipe: ClassVar[str] = "pfedfda"
    settings_class: ClassVar[type[Settings]] = PFedFdaSettings
    needs: ClassVar[tuple[str, ...]] = (MEANS, COVARIANCE, "train_features", "train_labels")
    settings: PFedFdaSettings

    def __init__(self, client: Client | ClientBundle, settings: PFedFdaSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        features, labels = (self.bundle.statistic(f"train_{name}") for name in ("features", "labels"))
        self.head, self.beta = client_head(features, labels, self.everyones(), self.settings)

    def everyones(self) -> Gaussians:
        """Return everyone's means and covariance."""
        return Gaussians(self.bundle.statistic(MEANS), self.bundle.statistic(COVARIANCE))

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the client's head's probabilities for (samples, dimensions) features."""
        return probabilities(self.head, as_features(batch, self.bundle.dimensions))


class PFedFdaHead(PFedFda):
    """The interpolated Gaussian head alone, on FedAvg's features: everyone's estimates come from the uploaded sums."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "pfedfda-head",
            "pFedFDA's head on FedAvg",
            "class Gaussians between the client's own and everyone's, on FedAvg's features",
            "McLaughlin and Su, NeurIPS 2024 (its head alone)",
            SKY,
            "6 dotted",
        ),
    )
    recipe: ClassVar[str] = "fedavg"
    needs: ClassVar[tuple[str, ...]] = (*NEEDED, "train_features", "train_labels")

    def everyones(self) -> Gaussians:
        """Return the means and the covariance that follow from everyone's sums."""
        return from_sums(everyones_sums(self.bundle))


def client_head(
    features: Floats, labels: Labels, everyone: Gaussians, settings: PFedFdaSettings
) -> tuple[LinearHead, Floats]:
    """Return the head that a client is tested with, and its weights b."""
    beta = choose_weights(features, labels, everyone, settings)
    own = own_gaussians(features, labels, everyone, settings, fewest=3 if settings.release else 1)
    return discriminant(between(own, everyone, beta), own_shares(labels, len(everyone.means))), beta


def from_sums(sums: ClassSums) -> Gaussians:
    """Return everyone's class means and covariance within the classes; a class nobody has is at the mean of all."""
    mean = sums.sums.sum(axis=0) / sums.counts.sum()
    means = np.where(sums.counts[:, None] > 0, sums.sums / np.maximum(sums.counts, 1.0)[:, None], mean)
    return Gaussians(means, (sums.scatter - (means.T * sums.counts) @ means) / max(sums.counts.sum() - 1, 1.0))


def own_shares(labels: Labels, classes: int) -> Floats:
    """Return the client's label shares, none of them zero."""
    shares = np.bincount(labels, minlength=classes) / max(len(labels), 1) + EPSILON
    return np.asarray(shares / shares.sum())


def own_gaussians(
    features: Floats, labels: Labels, everyone: Gaussians, settings: PFedFdaSettings, fewest: int = 1
) -> Gaussians:
    """Return the client's own means and covariance; classes of fewer than ``fewest`` samples have everyone's means."""
    classes, dimensions = everyone.means.shape
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros((classes, dimensions))
    np.add.at(sums, labels, features)
    has = counts >= fewest
    means = np.where(has[:, None], sums / np.maximum(counts, 1)[:, None], everyone.means)
    residuals = features - means[labels]
    # not a matrix product, which may add in another order with another number of threads
    covariance = np.einsum("ni,nj->ij", residuals, residuals) / max(len(labels) - 1, 1)
    added = EPSILON + np.eye(dimensions) if settings.release else EPSILON * np.eye(dimensions)
    return Gaussians(means, covariance + added)


def between(own: Gaussians, everyone: Gaussians, beta: Floats) -> Gaussians:
    """Return beta_1 own + (1 - beta_1) everyone's for the means, and the same with beta_2 for the covariance."""
    return Gaussians(*(b * mine + (1 - b) * theirs for b, mine, theirs in zip(beta, own, everyone, strict=True)))


def discriminant(of: Gaussians, shares: Floats) -> LinearHead:
    """Return linear discriminant analysis as a head."""
    dimensions = len(of.covariance)
    ridge = EPSILON * np.trace(of.covariance) / dimensions * np.eye(dimensions)
    weight = np.linalg.solve((1 - EPSILON) * of.covariance + ridge, of.means.T).T
    return LinearHead(weight, -0.5 * (weight * of.means).sum(axis=1) + np.log(shares))


def choose_weights(features: Floats, labels: Labels, everyone: Gaussians, settings: PFedFdaSettings) -> Floats:
    """Return b, (2,), of the lowest cross-entropy over two stratified folds; zeros where no class has two samples.

    It is rounded to four digits, so that the last bits of linear algebra change nothing in what is trained with it.
    """
    folds = two_folds(labels, settings.seed)
    if folds is None:
        return np.zeros(2)
    shares = own_shares(labels, len(everyone.means))
    trained = [own_gaussians(features[rows], labels[rows], everyone, settings) for rows in folds]
    tested = [(features[rows], labels[rows]) for rows in reversed(folds)]

    def loss(beta: Floats) -> float:
        total = 0.0
        for own, (seen, truth) in zip(trained, tested, strict=True):
            logs = log_softmax(discriminant(between(own, everyone, beta), shares).logits(seen))
            total -= float(logs[np.arange(len(truth)), truth].mean())
        return total

    bounds = [(0.0, 1.0), (0.0, 1.0)]
    found = scipy.optimize.minimize(
        loss, np.full(2, 0.5), method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS, "gtol": 1e-3}
    )
    return np.asarray(np.round(found.x, 4), dtype=np.float64)


def two_folds(labels: Labels, seed: int) -> tuple[Labels, Labels] | None:
    """Return the rows of two halves with the same class shares; classes of one sample are left out."""
    rng = generator(seed, "pfedfda folds")
    halves: tuple[list[Labels], list[Labels]] = ([], [])
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) > 1:
            for half, part in zip(halves, np.array_split(rows, 2), strict=True):
                half.append(part)
    return (np.concatenate(halves[0]), np.concatenate(halves[1])) if halves[0] else None
