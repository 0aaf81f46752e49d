"""Every knob of the coherent method."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from btfl.errors import InputError


@dataclass(frozen=True)
class CoherentSettings:
    """One default for all datasets, chosen on validation data (``benchmarks/coherent_settings.py``)."""

    temperature: float = 1.5
    """T of the class scores: features are less Gaussian than the model says."""
    shrinkage: float = 0.02
    """r of the covariance."""
    distorted: float = 1.0
    """How much a distorted copy of a training image counts in the class statistics, beside the image itself."""
    forgetting: float = 0.99
    """f: how much of a mixture's counts survives a sample."""
    change: float = 0.005
    """h: how likely the stream is to turn into another kind at a sample."""
    openness: float = 0.2
    """How much of everyone's label shares is mixed into the client's: no class is impossible, and a sample that looks
    foreign because it is shifted weighs only so much."""
    global_heads: Literal["fedavg", "generative", "both"] = "both"
    """FedAvg's head, the generative one under everyone's shares, or the mean of both."""
    local_heads: Literal["personal", "generative", "both"] = "both"
    """The personal head, the generative one under the client's shares, or the product of both."""
    log_tau_limit: float = 30.0

    evidence: Literal["label", "discriminant", "both", "likelihood"] = "label"
    """The ratio under label shift; a linear discriminant of the client against the others; the mean of these two; or
    the paper's quantised features (ablation)."""
    memory: Literal["regimes", "soft", "events"] = "regimes"
    """Three explanations of the stream; the mixture alone; or the paper's gated events (ablation)."""
    weight: Literal["predictive", "expectation"] = "predictive"
    """a/(a + b tau), or the paper's expectation over m (ablation)."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature must be above 0, not {self.temperature!r}")
        if not (math.isfinite(self.distorted) and self.distorted >= 0):
            raise InputError(f"distorted is a weight of 0 or more, not {self.distorted!r}")
        for name in ("shrinkage", "openness"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share from 0 to 1, not {getattr(self, name)!r}")
        for name in ("forgetting", "change"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} lies between 0 and 1, not {getattr(self, name)!r}")
        if not 0 < self.log_tau_limit <= 600:
            raise InputError(f"log_tau_limit lies above 0 and up to 600, not {self.log_tau_limit!r}")
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(hints[field.name])
            if choices and value not in choices:
                raise InputError(f"{field.name} must be one of {', '.join(choices)}, not {value!r}")

    @property
    def is_taken_apart(self) -> bool:
        """Whether a part is done in another way than the method's own."""
        return (self.evidence, self.memory, self.weight) != ("label", "regimes", "predictive")
