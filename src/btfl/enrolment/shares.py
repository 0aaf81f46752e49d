"""How often each class occurs on a new device, from few labels or from none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from btfl.core.softmax import log_softmax

Floats = NDArray[np.float64]

MOST_STEPS, TOLERANCE = 500, 1e-7


def strength(classes: int) -> float:
    """Return how many samples everyone's shares stand for: half a sample for each class, as in Jeffreys' prior."""
    return classes / 2


def counts_by_em(logits: Floats, everyone: Floats) -> Floats:
    """Return how many of the samples are expected of each class, (classes,), by expectation maximisation.

    In turn, each sample's probabilities follow from the shares, and the shares from their sum, as if ``strength``
    samples with everyone's shares had come before.

    Parameters
    ----------
    logits : (samples, classes), log p(z | y) but for a constant of each sample
    everyone : (classes,), everyone's shares, adding up to one
    """
    prior, samples = strength(len(everyone)), len(logits)
    likelihoods = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares, counts = everyone, everyone * samples
    for _ in range(MOST_STEPS):
        # responsibilities added up, without an (n, classes) array of them
        counts = shares * ((1.0 / np.maximum(likelihoods @ shares, 1e-300)) @ likelihoods)
        after = (counts + prior * everyone) / (samples + prior)
        moved = float(np.abs(after - shares).max())
        shares = after
        if moved < TOLERANCE:
            break
    return np.asarray(counts)


def responsibilities(logits: Floats, log_shares: Floats) -> Floats:
    """Return the (samples, classes) probabilities of each sample's class under these log shares."""
    return np.exp(log_softmax(logits + log_shares))
