"""Other ways to do each step of the coherent method, the paper's among them: to see what each part is worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.expectation import weight_and_complement
from btfl.errors import InputError
from btfl.methods.btfl.method import BayesianAdapter
from btfl.methods.coherent.discriminant import discriminant
from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]


class OtherParts:
    """Stands in for the evidence, the memory or the weight."""

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        self._settings = settings
        self._paper = BayesianAdapter(bundle)  # its likelihood ratio and its gated events
        self._line: tuple[Floats, float] | None = None
        if settings.evidence in ("discriminant", "both"):
            needed = ("train_features", "global_class_counts", "global_class_feature_sums", "global_feature_scatter")
            if missing := [name for name in needed if name not in bundle.statistics]:
                raise InputError(
                    f"evidence = {settings.evidence} needs {', '.join(missing)} in the bundle; train it anew"
                )
            own, counts, sums, scatter = (np.asarray(bundle.statistics[name], dtype=np.float64) for name in needed)
            self._line = discriminant(own, counts.sum(), sums.sum(axis=0), scatter, settings.shrinkage)

    def evidence(self, features: Floats, label_log_tau: Floats) -> Floats:
        """Return log tau by the way that is set."""
        self._paper.predict(features)
        kind = self._settings.evidence
        if kind == "likelihood":
            return self._paper.trace.log_tau
        if self._line is None:
            return label_log_tau
        weight, offset = self._line
        linear: Floats = features @ weight + offset
        return linear if kind == "discriminant" else (linear + label_log_tau) / 2

    def weight(self, judgements: Floats, log_tau: Floats) -> Floats:
        """Return e by the memory and the weight that are set; ``judgements`` are the three regimes'."""
        _, all_external, mixed, a, b = judgements
        if self._settings.memory == "soft":
            all_external, mixed = np.zeros_like(a), np.ones_like(a)
        elif self._settings.memory == "events":
            all_external, mixed = np.zeros_like(a), np.ones_like(a)
            a, b = self._paper.trace.a, self._paper.trace.b
        if self._settings.weight == "expectation":
            share = weight_and_complement(a, b, log_tau)[0]
        else:
            share = a / (a + b * np.exp(log_tau))
        return np.asarray(all_external + mixed * share)

    def reset(self) -> None:
        """Forget the stream."""
        self._paper.reset()
