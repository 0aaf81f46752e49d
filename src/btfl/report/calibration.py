"""Calibration: reliability and expected calibration error (Guo et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15
LEAST = 1e-12
"""A probability of zero for the true class counts as this, so that one sample cannot make the log loss infinite."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """Samples binned by confidence, (bins,) each: means, and the share of the samples; empty bins are left out."""

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    share: NDArray[np.float64]

    @property
    def error(self) -> float:
        """Expected calibration error: the mean distance of confidence and accuracy, by how many samples a bin has."""
        return float((self.share * np.abs(self.confidence - self.accuracy)).sum())


def reliability(confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = BINS) -> Reliability:
    """Bin predictions by confidence, (n,), in bins of equal width; ``right``, (n,): whether each is right."""
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    filled = counts > 0
    sure, correct = (
        np.bincount(place, weights=values, minlength=bins)[filled] / counts[filled]
        for values in (confidence, right.astype(np.float64))
    )
    return Reliability(sure, correct, counts[filled] / len(confidence))


def log_loss(true_probability: NDArray[np.float64]) -> float:
    """Return the mean negative log-likelihood of the true class, in nats, from its probabilities, (n,)."""
    return float(-np.log(np.maximum(true_probability, LEAST)).mean())
