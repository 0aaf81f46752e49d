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


def step(memory: Regimes, log_tau: float, forgetting: float) -> tuple[Regimes, float, float]:
    """Take one sample in; give the memory afterwards, P(the sample is external), and P(the stream is all external)."""
    _, _, a, b = memory
    # log(m + (1 - m) tau) and r, for any log tau without overflow
    top = max(0.0, log_tau)
    external, internal = a * math.exp(-top), b * math.exp(log_tau - top)
    log_evidence = top + math.log((external + internal) / (a + b))
    share = external / (external + internal)
    log_internal = forgetting * memory.internal + log_tau
    log_mixture = forgetting * memory.mixture + log_evidence
    peak = max(0.0, log_internal, log_mixture)
    weights = math.exp(log_internal - peak), math.exp(-peak), math.exp(log_mixture - peak)
    total = sum(weights)
    all_external = weights[1] / total
    after = Regimes(log_internal, log_mixture, 1 + forgetting * (a - 1) + share, 1 + forgetting * (b - 1) + 1 - share)
    return after, all_external + weights[2] / total * share, all_external


def run(memory: Regimes, log_tau: Floats, forgetting: float) -> tuple[Floats, Floats, Regimes]:
    """Feed a batch to the memory; give e and P(the stream is all external) of each sample, and the memory after it."""
    e, all_external = np.empty(len(log_tau)), np.empty(len(log_tau))
    for i, value in enumerate(log_tau.tolist()):
        memory, e[i], all_external[i] = step(memory, value, forgetting)
    return e, all_external, memory
