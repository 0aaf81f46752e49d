"""A memory of the stream by the rules of probability: three explanations compete, and every sample teaches.

Not in the paper; see docs/method.md, "Beyond the paper". The stream is now all internal, all external, or a mixture
with an unknown share m ~ Beta(a, b). Before each sample the explanation may have changed, with probability h, to any of
the three; then each is multiplied by how likely it makes the sample, tau being the sample's likelihood ratio:

    p <- (1 - h) p + h/3;    p_IND <- p_IND tau,    p_EXD <- p_EXD,    p_MIX <- p_MIX (m + (1 - m) tau),  m = a/(a+b)
    r = a / (a + b tau);     a <- 1 + f (a - 1) + r;    b <- 1 + f (b - 1) + 1 - r
    e = p_EXD + p_MIX r,     once the three p are made to add up to one

This is the forward pass of a hidden Markov model with three states. r is the exact posterior, under Beta(a, b), that
this sample is external; counting it softly, and fading by f a sample, is assumed-density filtering of the share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_THIRD = 1.0 / 3.0


class Regimes(NamedTuple):
    """What is remembered: probabilities of two explanations (the third has the rest), and the Beta of the mixture."""

    internal: float = _THIRD
    """P(the stream is all internal)."""
    mixture: float = _THIRD
    """P(the stream is a mixture)."""
    a: float = 1.0
    b: float = 1.0


class Judgement(NamedTuple):
    """What the memory makes of one sample."""

    e: float
    """P(the sample is external)."""
    all_external: float
    """P(the recent stream is all external)."""
    mixed: float
    """P(the recent stream is a mixture)."""
    a: float
    b: float
    """The Beta of the mixture's share that the sample was judged with."""


def step(memory: Regimes, log_tau: float, forgetting: float, change: float) -> tuple[Regimes, Judgement]:
    """Take one sample in; give the memory after it, and what it makes of the sample."""
    internal, mixture, a, b = memory
    tau = math.exp(log_tau)
    evidence = a + b * tau
    share = a / evidence
    kept, anew = 1.0 - change, change * _THIRD
    all_external = kept * (1.0 - internal - mixture) + anew
    internal = (kept * internal + anew) * tau
    mixture = (kept * mixture + anew) * (evidence / (a + b))
    total = internal + all_external + mixture
    internal, all_external, mixture = internal / total, all_external / total, mixture / total
    after = Regimes(internal, mixture, 1 + forgetting * (a - 1) + share, 1 + forgetting * (b - 1) + (1 - share))
    return after, Judgement(all_external + mixture * share, all_external, mixture, a, b)


def run(memory: Regimes, log_tau: Floats, forgetting: float, change: float) -> tuple[Floats, Regimes]:
    """Feed a batch to the memory; give the judgements as columns (see ``Judgement``), and the memory after it."""
    judgements = []
    for value in log_tau.tolist():
        memory, judgement = step(memory, value, forgetting, change)
        judgements.append(judgement)
    return np.array(judgements).T, memory
