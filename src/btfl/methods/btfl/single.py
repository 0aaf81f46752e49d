"""The steps for a sample that comes alone, in Python's own floats: what a device does all day.

Arrays of one element cost more than the arithmetic on them. Here are the same operations in the same order, and every
exponential by the same numpy loop, so that the answer is to the bit the one a batch would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from btfl.core.expectation import weight_of_one
from btfl.methods.btfl.memory import EXD, IND, NO_EVENT, Beta, count
from btfl.methods.btfl.settings import BayesianSettings


class Judgement(NamedTuple):
    """What was found for the sample, in the order of ``Trace``."""

    e: float
    log_tau: float
    log_tau_hat: float
    event: int
    a: float
    b: float
    local_entropy: float
    global_entropy: float


@dataclass(frozen=True)
class SingleSample:
    """Judges one sample from its likelihoods and entropies (HBU, CBU and DPI)."""

    local_mean: float
    global_mean: float
    dimensions: int
    settings: BayesianSettings

    @staticmethod
    def suits(settings: BayesianSettings) -> bool:
        """Return whether all knobs that are set are known here; the release's own ways with e are not."""
        return settings.squash is None and settings.expectation == "exact" and settings.mix == "probabilities"

    def judge(
        self, prior: Beta, log_q_local: float, log_q_global: float, local_entropy: float, global_entropy: float
    ) -> tuple[Judgement, Beta]:
        """Return the judgement, and the memory after it."""
        log_tau = log_q_local - log_q_global
        event = self._event(log_tau, local_entropy - self.local_mean, global_entropy - self.global_mean)
        after = prior
        if event and self.settings.use_history:
            after = count(prior, event == EXD, event == IND, self.settings)
        a, b = after if self.settings.count == "before" else prior
        log_tau_hat = self._log_rectified_ratio(log_q_local, log_q_global, local_entropy, global_entropy)
        e = weight_of_one(a, b, log_tau_hat)
        return Judgement(e, log_tau, log_tau_hat, event, a, b, local_entropy, global_entropy), after

    def _event(self, log_tau: float, local_excess: float, global_excess: float) -> int:
        if log_tau > 0:
            return IND if not self.settings.use_entropy or (local_excess < 0 < global_excess) else NO_EVENT
        if log_tau < 0:
            return EXD if not self.settings.use_entropy or (global_excess < 0 < local_excess) else NO_EVENT
        return NO_EVENT

    def _log_rectified_ratio(self, log_q_local: float, log_q_global: float, h_local: float, h_global: float) -> float:
        settings = self.settings
        if not settings.use_characteristic:
            return 0.0
        u_local = u_global = 1.0
        if settings.use_entropy:
            scale, limit = settings.global_entropy_scale or self.global_mean, settings.log_u_limit
            u_local = float(np.exp(min((h_local - self.local_mean) / self.local_mean, limit)))
            u_global = float(np.exp(min((h_global - scale) / scale, limit)))
        log_ratio = (u_local * log_q_local - u_global * log_q_global) / self.dimensions
        return min(max(log_ratio, -settings.log_tau_limit), settings.log_tau_limit)
