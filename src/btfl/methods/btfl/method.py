"""BTFL (Zhou and Liu, KDD 2025): how much to trust each head, decided for every sample with no optimisation.

``predict`` reads like the paper: extract what both heads and both likelihoods say (TI), update the memory of the
stream (HBU), rectify the sample's own evidence (CBU), take the expectation and mix the heads (DPI).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.expectation import SMALLEST_PARAMETER, weight_and_complement
from btfl.core.heads import RowwiseLinear
from btfl.core.likelihood import THRESHOLD
from btfl.core.softmax import entropy_of_parts, log_softmax, softmax_parts
from btfl.errors import InputError
from btfl.methods.btfl import memory
from btfl.methods.btfl.evidence import log_rectified_ratio
from btfl.methods.btfl.settings import BayesianSettings
from btfl.methods.btfl.single import Judgement, SingleSample
from btfl.methods.btfl.trapezoid import expected_weight_by_trapezoid

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """Why each sample of the last call was decided as it was; one entry a sample in every array."""

    e: Floats
    """Weight of the global head."""
    log_tau: Floats
    """log(Q_l / Q_g), the raw likelihood ratio."""
    log_tau_hat: Floats
    """The rectified ratio."""
    event: memory.Events
    """+1 for an external event, -1 for an internal one, 0 for none."""
    a: Floats
    b: Floats
    """The Beta the sample was judged with."""
    local_entropy: Floats
    global_entropy: Floats

    @classmethod
    def of_one(cls, judgement: Judgement) -> Trace:
        """Return the trace of a single sample."""
        columns: dict[str, Any] = {name: np.array([value]) for name, value in judgement._asdict().items()}
        return cls(**{**columns, "event": columns["event"].astype(np.int8)})

    @cached_property
    def tau(self) -> Floats:
        """Q_l / Q_g, kept within what a float can hold."""
        return np.exp(np.clip(self.log_tau, -700.0, 700.0))

    @cached_property
    def tau_hat(self) -> Floats:
        """The rectified ratio itself."""
        return np.exp(self.log_tau_hat)

    def __len__(self) -> int:
        return len(self.e)


class BayesianAdapter:
    """Predicts with a client's two heads, weighing them by what the stream has looked like and what the sample says."""

    def __init__(self, bundle: ClientBundle, settings: BayesianSettings | None = None) -> None:
        self.bundle = bundle
        self.settings = settings or BayesianSettings()
        self._heads = RowwiseLinear([bundle.personal_head, bundle.global_head])
        everyone = bundle.global_likelihood
        if self.settings.global_from == "others":
            everyone = everyone.without(bundle.local_likelihood)
        self._local_offset, local_odds = bundle.local_likelihood.log_odds(self.settings.smoothing)
        self._global_offset, global_odds = everyone.log_odds(self.settings.smoothing)
        self._odds = np.stack([local_odds, global_odds], axis=1)
        self._local_mean = max(bundle.local_entropy, self.settings.entropy_floor)
        self._global_mean = max(bundle.global_entropy, self.settings.entropy_floor)
        self._single = SingleSample(self._local_mean, self._global_mean, bundle.dimensions, self.settings)
        self._one_sample = (1, bundle.dimensions) if SingleSample.suits(self.settings) else None
        self._memory = memory.Beta()
        self._seen = 0
        self._trace: Trace | Judgement | None = None

    def predict(self, features: ArrayLike) -> Floats:
        """Return (samples, classes) probabilities for a batch of features, in the order of the stream."""
        if isinstance(features, np.ndarray) and features.shape == self._one_sample and features.dtype.kind == "f":
            return self._predict_one(features)
        features_ = as_features(features, width=self.bundle.dimensions)
        logits = self._heads.by_sample(features_)
        parts = softmax_parts(logits, self._heads.large(features_))
        weights, totals, _ = parts
        local_entropy, global_entropy = np.ascontiguousarray(entropy_of_parts(*parts).T)
        log_q_local, log_q_global = np.ascontiguousarray(((features_ > THRESHOLD) @ self._odds).T)
        log_q_local += self._local_offset
        log_q_global += self._global_offset
        log_tau = log_q_local - log_q_global
        local_excess, global_excess = local_entropy - self._local_mean, global_entropy - self._global_mean

        events = memory.detect_events(log_tau, local_excess, global_excess, self.settings)
        a, b, self._memory = memory.run(self._memory, events, self.settings)
        log_tau_hat = log_rectified_ratio(
            log_q_local,
            log_q_global,
            local_entropy,
            global_entropy,
            self._local_mean,
            self._global_mean,
            self.bundle.dimensions,
            self.settings,
        )
        e = self._expectation(a, b, log_tau_hat)
        self._seen += len(features_)
        self._trace = Trace(e, log_tau, log_tau_hat, events, a, b, local_entropy, global_entropy)
        return self._mix(e, logits, weights, totals)

    def _predict_one(self, features: NDArray[np.floating[Any]]) -> Floats:
        """Do the same for a single sample, to the bit, without arrays of one element."""
        features_ = np.ascontiguousarray(features, dtype=np.float64)
        length = float(np.vdot(features_, features_))
        if not math.isfinite(length):
            as_features(features_)  # says what is wrong
        weights, totals, logits = softmax_parts(self._heads.of_one(features_), length > self._heads.large_above)
        local_total, global_total = totals.tolist()
        local_log, global_log = np.log(totals).tolist()
        local_product, global_product = np.vecdot(weights, logits).tolist()
        local_entropy = max(local_log - local_product / local_total, 0.0)
        global_entropy = max(global_log - global_product / global_total, 0.0)
        # every partial sum of this product is exact (see log_odds), so it needs no order of its own
        log_q_local, log_q_global = (features_ > THRESHOLD).dot(self._odds)[0].tolist()
        self._trace, self._memory = self._single.judge(
            self._memory,
            log_q_local + self._local_offset,
            log_q_global + self._global_offset,
            local_entropy,
            global_entropy,
        )
        self._seen += 1
        e = self._trace.e
        mixed: Floats = e / global_total * weights[1] + (1.0 - e) / local_total * weights[0]
        return mixed[None]

    def _expectation(self, a: Floats, b: Floats, log_tau_hat: Floats) -> Floats:
        if self.settings.expectation == "trapezoid":
            return expected_weight_by_trapezoid(a, b, np.exp(log_tau_hat))
        return weight_and_complement(a, b, log_tau_hat)[0]

    def _mix(self, e: Floats, logits: Floats, weights: Floats, totals: Floats) -> Floats:
        if self.settings.mix == "log-probabilities":
            # logits are log-probabilities but for a constant of the sample, which normalising takes out
            return np.exp(log_softmax(e[:, None] * logits[:, 1] + (1.0 - e)[:, None] * logits[:, 0]))
        # e times a softmax, normalised in passing
        return (e / totals[:, 1])[:, None] * weights[:, 1] + ((1.0 - e) / totals[:, 0])[:, None] * weights[:, 0]

    @property
    def trace(self) -> Trace:
        """What was found and decided for each sample of the last ``predict``."""
        if self._trace is None:
            raise InputError("there is no trace yet: call predict first")
        if isinstance(self._trace, Judgement):  # arrays only for who asks
            self._trace = Trace.of_one(self._trace)
        return self._trace

    @property
    def state(self) -> dict[str, float | int]:
        """The memory of the stream: small, and plain JSON, so that a device can be switched off and go on."""
        return {"a": self._memory.a, "b": self._memory.b, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        missing = {"a", "b", "seen"} - set(state)
        if missing:
            raise InputError(f"the state lacks {', '.join(sorted(missing))}: give what .state gave")
        try:
            a, b, seen = float(state["a"]), float(state["b"]), int(state["seen"])
        except (TypeError, ValueError) as error:
            raise InputError(f"the state is not made of numbers: {error}") from None
        if not (math.isfinite(a) and math.isfinite(b) and min(a, b) >= SMALLEST_PARAMETER and seen >= 0):
            raise InputError(f"the state is out of range: a = {a}, b = {b}, seen = {seen}")
        self._memory, self._seen, self._trace = memory.Beta(a, b), seen, None

    def reset(self) -> None:
        """Forget the stream."""
        self._memory, self._seen, self._trace = memory.Beta(), 0, None
