"""Coherent: the same idea as BTFL's, done by the rules of probability. Ours, not the paper's (docs/method.md).

Four parts, each exchangeable by a setting: a density of the features of each class (``density.py``), the evidence of
one sample (``evidence.py``), a memory of the stream (``memory.py``) and the weight e (``weight.py``).

With linear scores all heads are linear: a product of softmaxes is the softmax of the sum of their logits. So a sample
costs one product, one exponential of its result, and a few additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_one_sample
from btfl.core.arithmetic import ARRAYS, SCALARS, Arithmetic
from btfl.core.bundle import ClientBundle
from btfl.core.generative import NEEDED, OPTIONAL, everyones_sums, shares
from btfl.core.heads import Head, product, stack
from btfl.core.softmax import softmax_parts
from btfl.errors import InputError
from btfl.knobs import Settings
from btfl.methods.base import Client, Column, Method, Trace
from btfl.methods.card import PINK, Card
from btfl.methods.coherent.density import DENSITIES
from btfl.methods.coherent.evidence import EVIDENCES
from btfl.methods.coherent.memory import MEMORIES
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.coherent.weight import WEIGHTS

Floats = NDArray[np.float64]
_LOCAL, _FEDAVG, _GENERATIVE = range(3)  # places in ``heads``


class Coherent(Method):
    """Mixes the heads by the probability that the sample is external.

    Parameters
    ----------
    client : a ``ClientBundle``, or a client with one
    settings : a ``CoherentSettings``; or give single settings by name

    Examples
    --------
    >>> method = Coherent(bundle)                        # doctest: +SKIP
    >>> method.predict(features)                         # doctest: +SKIP
    >>> method.trace.all_external                        # doctest: +SKIP
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "coherent",
            "Coherent (ours)",
            "mixes the heads by P(external): exact evidence under label shift, three regimes, no tests",
            "ours, not the paper's (docs/method.md)",
            PINK,
            "*",
        ),
    )
    settings_class: ClassVar[type[Settings]] = CoherentSettings
    needs: ClassVar[tuple[str, ...]] = ("local_class_counts", *NEEDED)
    reads: ClassVar[tuple[str, ...]] = (*needs, *OPTIONAL)
    """All it may read of a bundle's statistics: sums only."""
    columns: ClassVar[Mapping[str, Column]] = {
        "e": Column("P(the sample is external), which is the weight of the global head"),
        "log_tau": Column("the sample's log likelihood ratio, internal against external"),
        "all_external": Column("P(the stream is all external now): a drift detector"),
    }
    exportable: ClassVar[bool] = True
    settings: CoherentSettings

    heads: tuple[Head, Head, Head]
    """The local one, FedAvg's, and the generative one under everyone's label shares."""
    share_ratios: Floats
    """Of each class: the client's share of labels over everyone's."""
    global_weights: tuple[float, float]
    """How much of the global answer FedAvg's head and the generative one give."""

    def __init__(self, client: Client | ClientBundle, settings: CoherentSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        bundle, chosen = self.bundle, self.settings
        sums = everyones_sums(bundle, chosen.distorted)
        if sums.sums.shape != bundle.global_head.weight.shape:
            shapes = sums.sums.shape, bundle.global_head.weight.shape
            raise InputError(f"the statistics are for (classes, dimensions) = {shapes[0]}, the heads for {shapes[1]}")
        scores = DENSITIES[chosen.density](sums, chosen.shrinkage)
        everyone = shares(np.asarray(bundle.statistics["global_class_counts"], dtype=np.float64))
        own = shares(np.asarray(bundle.statistics["local_class_counts"], dtype=np.float64), everyone, chosen.openness)
        self.share_ratios = np.exp(own - everyone)
        generative = scores.under(own, chosen.temperature)
        local: Mapping[str, Head] = {
            "personal": bundle.personal_head,
            "generative": generative,
            "both": product(bundle.personal_head, generative),
        }
        self.heads = local[chosen.local_heads], bundle.global_head, scores.under(everyone, chosen.temperature)
        self.global_weights = {"fedavg": (1.0, 0.0), "generative": (0.0, 1.0), "both": (0.5, 0.5)}[chosen.global_heads]
        self._stack = stack(self.heads)
        self._evidence = EVIDENCES[chosen.evidence](bundle, chosen, self.share_ratios)
        self._memory = MEMORIES[chosen.memory](bundle, chosen)
        self._weight = WEIGHTS[chosen.weight]
        single = self._evidence.single and self._memory.single
        self._one_sample = (1, bundle.dimensions) if single else None
        self._seen = 0

    def predict(self, batch: ArrayLike) -> Floats:
        """Return (samples, classes) probabilities for (samples, dimensions) features, in the order of the stream."""
        if isinstance(batch, np.ndarray) and batch.shape == self._one_sample and batch.dtype.kind == "f":
            single, length = as_one_sample(batch)
            weights, totals, _ = softmax_parts(self._stack.of_one(single), length > self._stack.large_above)
            sums = totals.tolist()
            e = self._decide(SCALARS, single, weights[_GENERATIVE], sums[_GENERATIVE])
            return _mixed(weights, *self._shares(e, *sums))[None]
        features = as_features(batch, width=self.bundle.dimensions)
        weights, totals, _ = softmax_parts(self._stack.by_sample(features), self._stack.large(features))
        e = self._decide(ARRAYS, features, weights[:, _GENERATIVE], totals[:, _GENERATIVE])
        return _mixed(weights.swapaxes(0, 1), *(share[:, None] for share in self._shares(e, *totals.T)))

    def _decide(self, xp: Arithmetic, features: Floats, weights: Any, totals: Any) -> Any:
        """Return e by evidence, memory and weight; the generative head's softmax comes as weights over totals."""
        log_tau = self._evidence.log_tau(xp, features, weights, totals)
        log_tau = xp.clip(log_tau, self.settings.log_tau_limit)
        judged = self._memory.take(log_tau, features)
        e = self._weight(xp, judged, log_tau)
        self._seen += len(features)
        self.found = e, log_tau, judged.all_external
        return e

    def _shares(self, e: Any, local: Any, fedavg: Any, generative: Any) -> tuple[Any, Any, Any]:
        """Return how much of each head's softmax is in the answer, over its total, in the order of ``heads``."""
        from_fedavg, from_generative = self.global_weights
        return (1.0 - e) / local, e * from_fedavg / fedavg, e * from_generative / generative

    @property
    def trace(self) -> Trace:
        """Why each sample of the last ``predict`` was decided as it was: see ``columns``."""
        return self._traced()

    @property
    def state(self) -> dict[str, Any]:
        """The memory of the stream: small, and plain JSON, so that a device can be switched off and go on."""
        return {**self._memory.state, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self._memory.restore(state)
        self._seen, self.found = int(state["seen"]), None

    def reset(self) -> None:
        """Forget the stream."""
        self._memory.reset()
        self._seen, self.found = 0, None


def _mixed(weights: Any, local: Any, fedavg: Any, generative: Any) -> Floats:
    """Mix the three heads' weights by their shares: numbers, or columns of a batch."""
    mixed: Floats = fedavg * weights[_FEDAVG] + generative * weights[_GENERATIVE] + local * weights[_LOCAL]
    return mixed
