"""Ours, not the paper's: the same idea done by the rules of probability (docs/method.md, "Beyond the paper").

Evidence is the exact likelihood ratio under label shift from the generative head; the memory weighs three explanations
of the stream; e is their predictive probability that the sample is external. No entropy tests, no integral.

All heads are linear: the generative one is, and a product of softmaxes is the softmax of the sum of their logits. So a
sample costs one product, one exponential of its result, and a few additions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.generative import SUMS, class_scores, shares
from btfl.core.heads import LinearHead, RowwiseLinear
from btfl.core.softmax import softmax_parts
from btfl.errors import InputError
from btfl.methods.coherent import regimes
from btfl.methods.coherent.parts import OtherParts
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.generative_head import class_statistics

Floats = NDArray[np.float64]

OWN = "local_class_counts"
STATISTICS = (OWN, *(f"global_{kind}{name}" for kind in ("", "distorted_") for name in SUMS))
"""What it takes of a bundle's statistics: sums only."""


@dataclass(frozen=True, eq=False)
class CoherentTrace:
    """Why each sample of the last call was decided as it was."""

    e: Floats
    """P(the sample is external), which is the weight of the global head."""
    log_tau: Floats
    """The sample's log likelihood ratio, internal against external."""
    all_external: Floats
    """P(the stream is all external now): a drift detector."""


class CoherentAdapter:
    """Mixes the heads by the probability that the sample is external."""

    heads: tuple[LinearHead, LinearHead, LinearHead]
    """The local one, FedAvg's, and the generative one under everyone's label shares."""
    share_ratios: Floats
    """Of each class: the client's share of labels over everyone's."""
    global_weights: tuple[float, float]
    """How much of the global answer FedAvg's head and the generative one give."""

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings | None = None) -> None:
        self.bundle, self.settings = bundle, settings or CoherentSettings()
        everyone, sums, scatter = class_statistics(bundle, self.settings.distorted)
        if OWN not in bundle.statistics:
            raise InputError(f"the bundle lacks the statistic '{OWN}', which training leaves there; train it anew")
        of_client = np.asarray(bundle.statistics[OWN], dtype=np.float64)
        scores = class_scores(everyone, sums, scatter, self.settings.shrinkage)
        if scores.weight.shape != bundle.global_head.weight.shape:
            shapes = scores.weight.shape, bundle.global_head.weight.shape
            raise InputError(f"the statistics are for (classes, dimensions) = {shapes[0]}, the heads for {shapes[1]}")
        global_shares = shares(np.asarray(bundle.statistics["global_class_counts"], dtype=np.float64))
        own = shares(of_client, global_shares, self.settings.openness)
        self.share_ratios = np.exp(own - global_shares)
        self.heads = (
            self._local(scores, own),
            bundle.global_head,
            scores.under(global_shares, self.settings.temperature),
        )
        self._logits = RowwiseLinear(self.heads)
        self.global_weights = {"fedavg": (1.0, 0.0), "generative": (0.0, 1.0), "both": (0.5, 0.5)}[
            self.settings.global_heads
        ]
        self._others = OtherParts(bundle, self.settings) if self.settings.is_taken_apart else None
        self._one_sample = (1, bundle.dimensions) if self._others is None else None
        self._memory = regimes.Regimes()
        self._seen = 0
        self._trace: CoherentTrace | tuple[float, float, float] | None = None

    def _local(self, scores: LinearHead, own_shares: Floats) -> LinearHead:
        """Return the personal head, the generative one, or their product: the head of the sum of their logits."""
        personal, generative = self.bundle.personal_head, scores.under(own_shares, self.settings.temperature)
        choices = {"personal": personal, "generative": generative, "both": personal.times(generative)}
        return choices[self.settings.local_heads]

    def predict(self, features: ArrayLike) -> Floats:
        """Return (samples, classes) probabilities for a batch of features, in the order of the stream."""
        if isinstance(features, np.ndarray) and features.shape == self._one_sample and features.dtype.kind == "f":
            return self._predict_one(features)
        features_ = as_features(features, width=self.bundle.dimensions)
        weights, totals, _ = softmax_parts(self._logits.by_sample(features_), self._logits.large(features_))
        # the ratio of two mixtures of the same classes is the mean of their share ratios under one's posterior
        log_tau = np.log(np.vecdot(weights[:, 2], self.share_ratios) / totals[:, 2])
        if self._others is not None:
            log_tau = self._others.evidence(features_, log_tau)
        log_tau = np.clip(log_tau, -self.settings.log_tau_limit, self.settings.log_tau_limit)
        judgements, self._memory = regimes.run(self._memory, log_tau, self.settings.forgetting, self.settings.change)
        e, all_external = judgements[0], judgements[1]
        if self._others is not None:
            e = self._others.weight(judgements, log_tau)
        self._seen += len(e)
        self._trace = CoherentTrace(e, log_tau, all_external)
        from_fedavg, from_generative = self.global_weights
        mixed: Floats = (
            (e * from_fedavg / totals[:, 1])[:, None] * weights[:, 1]
            + (e * from_generative / totals[:, 2])[:, None] * weights[:, 2]
            + ((1.0 - e) / totals[:, 0])[:, None] * weights[:, 0]
        )
        return mixed

    def _predict_one(self, features: NDArray[np.floating[Any]]) -> Floats:
        """Do the same for a single sample, to the bit, without arrays of one element."""
        features_ = np.ascontiguousarray(features, dtype=np.float64)
        length = float(np.vdot(features_, features_))
        if not math.isfinite(length):
            as_features(features_)  # says what is wrong
        weights, totals, _ = softmax_parts(self._logits.of_one(features_), length > self._logits.large_above)
        local, fedavg, generative = weights
        local_total, fedavg_total, generative_total = totals.tolist()
        limit = self.settings.log_tau_limit
        log_tau = float(np.log(np.vecdot(generative, self.share_ratios) / generative_total))
        log_tau = min(max(log_tau, -limit), limit)
        self._memory, judgement = regimes.step(self._memory, log_tau, self.settings.forgetting, self.settings.change)
        self._seen += 1
        e, from_fedavg, from_generative = judgement.e, *self.global_weights
        self._trace = e, log_tau, judgement.all_external
        mixed: Floats = (
            e * from_fedavg / fedavg_total * fedavg
            + e * from_generative / generative_total * generative
            + (1.0 - e) / local_total * local
        )
        return mixed[None]

    @property
    def trace(self) -> CoherentTrace:
        """What was found and decided for each sample of the last ``predict``."""
        if self._trace is None:
            raise InputError("there is no trace yet: call predict first")
        if isinstance(self._trace, tuple):  # arrays only for who asks
            self._trace = CoherentTrace(*(np.array([value]) for value in self._trace))
        return self._trace

    @property
    def state(self) -> dict[str, float | int]:
        """The memory of the stream: small, and plain JSON."""
        return {**self._memory._asdict(), "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        if self._others is not None:
            raise InputError("a coherent adapter that is taken apart for an ablation cannot be saved and restored")
        try:
            memory = regimes.Regimes(*(float(state[name]) for name in regimes.Regimes._fields))
            seen = int(state["seen"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not a state of this method: {error!r}; give what .state gave") from None
        sound = all(map(math.isfinite, memory)) and min(memory.internal, memory.mixture) >= 0
        if not sound or memory.internal + memory.mixture > 1 + 1e-9 or min(memory.a, memory.b) < 1 or seen < 0:
            raise InputError(f"the state is out of range: {dict(state)}")
        self._memory, self._seen, self._trace = memory, seen, None

    def reset(self) -> None:
        """Forget the stream."""
        self._memory, self._seen, self._trace = regimes.Regimes(), 0, None
        if self._others is not None:
            self._others.reset()
