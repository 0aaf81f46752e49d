"""LAME (Boudiaf et al., CVPR 2022): keep the model, and adjust its answers so that neighbours in a batch agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.softmax import log_softmax
from btfl.knobs import Settings, knob
from btfl.methods.base import Floats, Method
from btfl.methods.card import VIOLET, Card
from btfl.methods.t3a import unit

MOST_STEPS, TOLERANCE = 100, 1e-8  # as in the release
_LEAST_LOG = -23.0  # log of 1e-10, the release's floor for a probability


@dataclass(frozen=True)
class LameSettings(Settings):
    """How LAME adjusts."""

    title: ClassVar[str] = "LAME"

    neighbours: int = knob(5, "How many nearest samples of the batch a sample is tied to.", least=1)


class Lame(Method):
    """Answers Z that minimise sum_i KL(z_i || q_i) - 1/2 sum_ij w_ij z_i . z_j over a batch.

    q are the global head's probabilities, and w_ij says whether i and j are among each other's ``neighbours`` nearest
    by the angle of their features: 1 if both, a half if one. Nothing is kept from batch to batch, and a batch of a
    single sample is answered as the head does.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "lame",
            "LAME",
            "the global head's answers, adjusted so that neighbours within a batch agree",
            "Boudiaf et al., CVPR 2022",
            VIOLET,
            "p dotted",
            "dotted",
        ),
    )
    settings_class: ClassVar[type[Settings]] = LameSettings
    settings: LameSettings

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the adjusted probabilities of a batch of (samples, dimensions) features."""
        features = as_features(batch, self.bundle.dimensions)
        log_q = log_softmax(self.bundle.global_head.logits(features))
        return adjust(log_q, affinity(features, self.settings.neighbours))


def affinity(features: Floats, neighbours: int) -> Floats:
    """Return symmetric w, (n, n): the mean of "j is among i's nearest" and the reverse, none its own neighbour."""
    count = len(features)
    directions = unit(features)
    distance = 1.0 - directions @ directions.T
    np.fill_diagonal(distance, np.inf)
    # Two of a kind are equally far but for rounding, which depends on the batch; the earlier one is then the nearer.
    nearest = np.argsort(distance.round(12), axis=1, kind="stable")[:, : min(neighbours, count - 1)]
    near = np.zeros((count, count))
    np.put_along_axis(near, nearest, 1.0, axis=1)
    return (near + near.T) / 2.0


def objective(log_z: Floats, log_q: Floats, w: Floats) -> float:
    """Return what LAME minimises."""
    z = np.exp(log_z)
    return float((z * (log_z - log_q)).sum() - 0.5 * (z * (w @ z)).sum())


def adjust(log_q: Floats, w: Floats) -> Floats:
    """Minimise the objective from z = q on: z_i becomes proportional to q_i exp(sum_j w_ij z_j) until all stand still.

    Each step minimises an upper bound, the neighbours' term being replaced by its tangent.
    """
    log_q = np.maximum(log_q, _LEAST_LOG)
    log_z = log_softmax(log_q)
    before = np.inf
    for step in range(MOST_STEPS):
        log_z = log_softmax(log_q + w @ np.exp(log_z))
        now = objective(log_z, log_q, w)
        if step > 1 and abs(now - before) <= TOLERANCE * abs(before):
            break
        before = now
    return np.exp(log_z)
