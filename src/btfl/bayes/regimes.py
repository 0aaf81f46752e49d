"""A memory of the stream by the rules of probability: three explanations compete, and every sample teaches.

Not in the paper; see docs/method.md, "Beyond the paper". The recent stream is all internal, all external, or a mixture
with an unknown share m ~ Beta(a, b). Each sample's likelihood ratio tau multiplies the weight of each explanation, and
old evidence fades by a factor f a sample:

    L_IND <- f L_IND + log tau,    L_EXD <- f L_EXD,    L_MIX <- f L_MIX + log(m + (1 - m) tau),  m = a/(a+b)
    r = a / (a + b tau);   a <- 1 + f (a - 1) + r;   b <- 1 + f (b - 1) + 1 - r
    e = P(EXD) + P(MIX) r,   P the softmax of the three L

r is the exact posterior, under Beta(a, b), that this sample is external; counting it softly is assumed-density
filtering. L_EXD is always zero, so it is not kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Regimes(NamedTuple):
    """What is remembered: log weights of two explanations against the third, and the Beta of the mixture."""

    internal: float = 0.0
    """L_IND - L_EXD."""
    mixture: float = 0.0
    """L_MIX - L_EXD."""
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


def step(memory: Regimes, log_tau: float, forgetting: float) -> tuple[Regimes, Judgement]:
    """Take one sample in; give the memory after it, and what it makes of the sample."""
    internal, mixture, a, b = memory
    # log(m + (1 - m) tau) and r, for any log tau without overflow
    if log_tau > 0:
        scale = math.exp(-log_tau)
        external = a * scale
        evidence = external + b
        log_evidence = log_tau + math.log(evidence / (a + b))
    else:
        external = a
        evidence = a + b * math.exp(log_tau)
        log_evidence = math.log(evidence / (a + b))
    share = external / evidence
    internal = forgetting * internal + log_tau
    mixture = forgetting * mixture + log_evidence
    peak = max(0.0, internal, mixture)
    all_external, mixed = math.exp(-peak), math.exp(mixture - peak)
    total = math.exp(internal - peak) + all_external + mixed
    all_external, mixed = all_external / total, mixed / total
    after = Regimes(internal, mixture, 1 + forgetting * (a - 1) + share, 1 + forgetting * (b - 1) + (1 - share))
    return after, Judgement(all_external + mixed * share, all_external, mixed, a, b)


def run(memory: Regimes, log_tau: Floats, forgetting: float) -> tuple[Floats, Regimes]:
    """Feed a batch to the memory; give the judgements as columns (see ``Judgement``), and the memory after it."""
    judgements = []
    for value in log_tau.tolist():
        memory, judgement = step(memory, value, forgetting)
        judgements.append(judgement)
    return np.array(judgements).T, memory
