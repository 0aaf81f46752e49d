"""Ours, not the paper's: the same idea done by the rules of probability (docs/method.md, "Beyond the paper").

Evidence is the exact likelihood ratio under label shift from the generative head; the memory weighs three explanations
of the stream; e is their predictive probability that the sample is external. No entropy tests, no integral.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.bayes import regimes
from btfl.bayes.evidence import log_softmax
from btfl.bayes.generative import class_scores, log_sum_exp, shares
from btfl.bundle import ClientBundle
from btfl.checks import as_features
from btfl.errors import InputError
from btfl.heads import LinearHead, RowwiseLinear

Floats = NDArray[np.float64]
GlobalHeads = Literal["fedavg", "generative", "both"]
LocalHeads = Literal["personal", "generative", "both"]


@dataclass(frozen=True)
class CoherentSettings:
    """One default for all datasets, chosen on validation data."""

    temperature: float = 2.0
    """T of the class scores: features are less Gaussian than the model says."""
    shrinkage: float = 0.2
    """r of the covariance."""
    forgetting: float = 0.99
    """f: how much of the evidence survives a sample."""
    openness: float = 0.02
    """How much of everyone's label shares is mixed into the client's, so that no class is impossible."""
    global_heads: GlobalHeads = "both"
    """FedAvg's head, the generative one under everyone's shares, or the mean of both."""
    local_heads: LocalHeads = "both"
    """The personal head, the generative one under the client's shares, or the product of both."""
    log_tau_limit: float = 30.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature must be above 0, not {self.temperature!r}")
        for name in ("shrinkage", "openness"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share from 0 to 1, not {getattr(self, name)!r}")
        if not 0 < self.forgetting < 1:
            raise InputError(f"forgetting lies between 0 and 1, not {self.forgetting!r}")
        if not 0 < self.log_tau_limit <= 600:
            raise InputError(f"log_tau_limit lies above 0 and up to 600, not {self.log_tau_limit!r}")
        for name, kinds in (("global_heads", get_args(GlobalHeads)), ("local_heads", get_args(LocalHeads))):
            if getattr(self, name) not in kinds:
                raise InputError(f"{name} must be one of {', '.join(kinds)}, not {getattr(self, name)!r}")


@dataclass(frozen=True, eq=False)
class CoherentTrace:
    """Why each sample of the last call was decided as it was."""

    e: Floats
    """P(the sample is external), which is the weight of the global head."""
    log_tau: Floats
    """The sample's log likelihood ratio, internal against external."""
    all_external: Floats
    """P(the recent stream is all external): a drift detector."""


class CoherentAdapter:
    """Mixes the heads by the probability that the sample is external."""

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings | None = None) -> None:
        self.bundle, self.settings = bundle, settings or CoherentSettings()
        everyone = _statistic(bundle, "global_class_counts")
        scores = class_scores(
            everyone,
            _statistic(bundle, "global_class_feature_sums"),
            _statistic(bundle, "global_feature_scatter"),
            self.settings.shrinkage,
        )
        if scores.weight.shape != bundle.global_head.weight.shape:
            shapes = scores.weight.shape, bundle.global_head.weight.shape
            raise InputError(f"the statistics are for (classes, dimensions) = {shapes[0]}, the heads for {shapes[1]}")
        temperature = self.settings.temperature
        assert scores.bias is not None
        cooled = LinearHead(scores.weight / temperature, scores.bias / temperature)
        self._heads = RowwiseLinear([bundle.personal_head, bundle.global_head, cooled])
        self._global_shares = shares(everyone)
        own = _statistic(bundle, "local_class_counts")
        self._local_shares = shares(own, self._global_shares, self.settings.openness)
        self._memory = regimes.Regimes()
        self._seen = 0
        self._trace: CoherentTrace | None = None

    def predict(self, features: ArrayLike) -> Floats:
        """Give (samples, classes) probabilities for a batch of features, in the order of the stream."""
        personal, global_, scores = self._heads(as_features(features, width=self.bundle.dimensions))
        as_internal, as_external = scores + self._local_shares, scores + self._global_shares
        limit = self.settings.log_tau_limit
        log_tau = np.clip(log_sum_exp(as_internal) - log_sum_exp(as_external), -limit, limit)
        e, all_external, self._memory = regimes.run(self._memory, log_tau, self.settings.forgetting)
        self._seen += len(e)
        self._trace = CoherentTrace(e, log_tau, all_external)
        weight = e[:, None]
        return weight * self._global(global_, as_external) + (1 - weight) * self._local(personal, as_internal)

    def _global(self, logits: Floats, generative: Floats) -> Floats:
        kinds = {"fedavg": [logits], "generative": [generative], "both": [logits, generative]}
        chosen = [np.exp(log_softmax(one)) for one in kinds[self.settings.global_heads]]
        return np.asarray(sum(chosen) / len(chosen))

    def _local(self, logits: Floats, generative: Floats) -> Floats:
        kinds = {"personal": [logits], "generative": [generative], "both": [logits, generative]}
        product = sum(log_softmax(one) for one in kinds[self.settings.local_heads])
        return np.exp(log_softmax(np.asarray(product)))

    @property
    def trace(self) -> CoherentTrace:
        """What was found and decided for each sample of the last ``predict``."""
        if self._trace is None:
            raise InputError("there is no trace yet: call predict first")
        return self._trace

    @property
    def state(self) -> dict[str, float | int]:
        """The memory of the stream: small, and plain JSON."""
        return {**self._memory._asdict(), "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        try:
            memory = regimes.Regimes(*(float(state[name]) for name in regimes.Regimes._fields))
            seen = int(state["seen"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is not a state of this method: {error!r}; give what .state gave") from None
        if not all(map(math.isfinite, memory)) or min(memory.a, memory.b) < 1 or seen < 0:
            raise InputError(f"the state is out of range: {dict(state)}")
        self._memory, self._seen, self._trace = memory, seen, None

    def reset(self) -> None:
        """Forget the stream."""
        self._memory, self._seen, self._trace = regimes.Regimes(), 0, None


def _statistic(bundle: ClientBundle, name: str) -> Floats:
    if name not in bundle.statistics:
        raise InputError(f"the bundle lacks the statistic '{name}', which training leaves there; train it anew")
    return np.asarray(bundle.statistics[name], dtype=np.float64)
