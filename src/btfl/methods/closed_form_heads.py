"""Heads in closed form from sums that clients upload once: FedCGS, GH-OFL and Fed3R.

All three read class counts n_k, feature sums s_k and the sum S of z z', which add up over clients. They came before
Coherent's generative head, which is FedCGS's with shrinkage, a temperature and distorted copies.

- FedCGS (Guan et al., AAAI 2025), and GH-OFL's LDA: classes are Gaussians about mu_k = s_k / n_k with one covariance
  V, so the logits are mu_k' V^-1 z - mu_k' V^-1 mu_k / 2 + log n_k.
- GH-OFL (Turazza et al., 2026), naive Bayes: the same with the diagonal of V alone. Its QDA needs second moments of
  each class, which are not among our sums; its heads trained on synthetic samples are not here (``ccvr`` is of that
  kind).
- Fed3R (Fani et al., ICML 2024): ridge regression on the classes, W = (S + lambda I)^-1 s, rows brought to length 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.generative import NEEDED, class_scores, everyones_sums, shares
from btfl.core.heads import LinearHead, probabilities
from btfl.core.sums import ClassSums
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import OCHRE, Card
from btfl.methods.t3a import unit

Kind = Literal["lda", "diagonal", "ridge"]


@dataclass(frozen=True)
class ClosedFormSettings(Settings):
    """Which head, and how it is kept from being singular."""

    title: ClassVar[str] = "closed-form head"

    head: Kind = knob("lda", "Gaussians with one covariance, with its diagonal alone, or ridge regression.")
    shrinkage: float = knob(0.01, "Share of the covariance that is replaced by its mean variance.", least=0, most=1)
    ridge: float = knob(0.01, "Lambda of ridge regression.", above=0)
    temperature: float = knob(0.1, "What ridge regression's scores are divided by; no answer changes by it.", above=0)


class ClosedFormHead(Method):
    """A head computed from everyone's sums in place of the trained global one."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedcgs",
            "FedCGS",
            "class Gaussians with one covariance, from everyone's sums, as the head",
            "Guan et al., AAAI 2025; GH-OFL's LDA is the same",
            OCHRE,
            "4",
        ),
        Card(
            "gh-ofl-nb",
            "GH-OFL (NB)",
            "class Gaussians with the diagonal of one covariance, from everyone's sums, as the head",
            "Turazza et al., 2026",
            OCHRE,
            "4 open",
            "dashed",
            settings={"head": "diagonal"},
        ),
        Card(
            "fed3r",
            "Fed3R",
            "ridge regression on the classes, from everyone's sums, as the head",
            "Fani et al., ICML 2024",
            OCHRE,
            "4 dotted",
            settings={"head": "ridge"},
        ),
    )
    settings_class: ClassVar[type[Settings]] = ClosedFormSettings
    needs: ClassVar[tuple[str, ...]] = NEEDED
    settings: ClosedFormSettings

    def __init__(
        self, client: Client | ClientBundle, settings: ClosedFormSettings | None = None, **changes: Any
    ) -> None:
        super().__init__(client, settings, **changes)
        chosen, sums = self.settings, everyones_sums(self.bundle)
        if chosen.head == "ridge":
            self.head = ridge_head(sums, chosen.ridge, chosen.temperature)
        else:
            made = sums if chosen.head == "lda" else without_correlations(sums)
            self.head = class_scores(made, chosen.shrinkage).under(shares(sums.counts))

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the head's probabilities for (samples, dimensions) features."""
        return probabilities(self.head, as_features(batch, self.bundle.dimensions))


def without_correlations(sums: ClassSums) -> ClassSums:
    """Return sums of the same class means, whose covariance within the classes is the diagonal of the given one."""
    means = sums.sums / np.maximum(sums.counts, 1.0)[:, None]
    between = (means.T * sums.counts) @ means
    return ClassSums(sums.counts, sums.sums, between + np.diag(np.diagonal(sums.scatter - between)))


def ridge_head(sums: ClassSums, ridge: float, temperature: float) -> LinearHead:
    """Return (S + lambda I)^-1 s with rows of length 1, over a temperature."""
    square = sums.scatter + ridge * np.eye(len(sums.scatter))
    rows: Floats = np.asarray(np.linalg.solve(square, sums.sums.T).T, dtype=np.float64)
    return LinearHead(unit(rows) / temperature)
