"""Coherent: the same idea as BTFL's, done by the rules of probability. Ours, not the paper's (docs/method.md).

Four parts, each exchangeable by a setting: a density of the features of each class (``density.py``), the evidence of
one sample (``evidence.py``), a memory of the stream (``memory.py``) and the weight e (``weight.py``).

With linear scores all heads are linear: a product of softmaxes is the softmax of the sum of their logits. So a sample
costs one product, one exponential of its result, and a few additions.

Clients that differ in their labels alone share the class means. Where their validation parts say that they differ in
what a class looks like, too, each has means of its own (``core.local_answer``): in the evidence, which then compares
two densities, and in the local answer, which then has a covariance of the client's own as well. Without that, the
evidence is version 1's, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_one_sample
from btfl.core.arithmetic import ARRAYS, SCALARS, Arithmetic
from btfl.core.bundle import OWN_SCATTER, OWN_SUMS, ClientBundle
from btfl.core.calibration import SHAPES, Choice
from btfl.core.compiled import Compiled, columns_of, suits, walk_of
from btfl.core.generative import NEEDED, OPTIONAL, everyones_sums, shares
from btfl.core.heads import Head, product, stack
from btfl.core.local_answer import Everyone, LocalAnswer, own_offsets, own_scores
from btfl.core.softmax import mixed, mixed_of_one, softmax_weights
from btfl.core.sums import ClassSums
from btfl.errors import InputError
from btfl.knobs import Settings
from btfl.methods.base import Brings, Client, Column, Method, Trace
from btfl.methods.card import PINK, Card
from btfl.methods.coherent.density import DENSITIES
from btfl.methods.coherent.evidence import EVIDENCES
from btfl.methods.coherent.memory import MEMORIES, Regimes, ThreeRegimes
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.coherent.weight import WEIGHTS
from btfl.methods.parts import in_parts

Floats = NDArray[np.float64]
_LOCAL, _FEDAVG, _GENERATIVE, _OWN = range(4)  # places in ``heads``


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
            "mixes the heads by P(external): evidence from class Gaussians, three regimes, settings by likelihood",
            "ours, not the paper's (docs/method.md)",
            PINK,
            "*",
        ),
        Card(
            "coherent-1",
            "Coherent 1 (ours)",
            "its first version: clients differ in their labels alone, one setting for all datasets",
            colour=PINK,
            marker="* open",
            line="dashed",
            settings={"preset": "first"},
        ),
    )
    settings_class: ClassVar[type[Settings]] = CoherentSettings
    needs: ClassVar[tuple[str, ...]] = ("local_class_counts", *NEEDED)
    reads: ClassVar[tuple[str, ...]] = (*needs, *OPTIONAL, OWN_SUMS, OWN_SCATTER, *SHAPES)
    """All it may read of a bundle's statistics: sums only."""
    columns: ClassVar[Mapping[str, Column]] = {
        "e": Column("P(the sample is external), which is the weight of the global head"),
        "log_tau": Column("the sample's log likelihood ratio, internal against external"),
        "all_external": Column("P(the stream is all external now): a drift detector"),
    }
    exportable: ClassVar[bool] = True
    enrols: ClassVar[Brings] = "nothing"
    memory_outlives_bundle: ClassVar[bool] = True
    settings: CoherentSettings

    chosen: Choice
    """The settings that the data can set, as they are used."""
    local_answer: LocalAnswer | None
    """What the local answer is made with where it has settings or a covariance of its own; else as ``chosen`` says."""
    heads: tuple[Head, ...]
    """The local one, FedAvg's, and the generative one under everyone's label shares; where the client has class means
    of its own, also the generative one with these, under its own shares."""
    share_ratios: Floats
    """Of each class: the client's share of labels over everyone's."""
    compares_means: bool
    """Whether the evidence compares the client's own class means with everyone's, and not only label shares."""
    global_weights: tuple[float, float]
    """How much of the global answer FedAvg's head and the generative one give."""
    compiled: Compiled | None
    """Its steps as they were compiled; None where numpy does them."""

    def __init__(self, client: Client | ClientBundle, settings: CoherentSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        bundle, settings_ = self.bundle, self.settings
        self.chosen = chosen = settings_.chosen(bundle)
        sums = everyones_sums(bundle, settings_.distorted)
        if sums.sums.shape != bundle.global_head.weight.shape:
            shapes = sums.sums.shape, bundle.global_head.weight.shape
            raise InputError(f"the statistics are for (classes, dimensions) = {shapes[0]}, the heads for {shapes[1]}")
        density = DENSITIES[settings_.density]
        scores = density(sums, chosen.shrinkage)
        offsets = self._offsets()
        client_scores = scores if offsets is None else density(sums, chosen.shrinkage, offsets)
        everyone = shares(np.asarray(bundle.statistics["global_class_counts"], dtype=np.float64))
        own = shares(
            np.asarray(bundle.statistics["local_class_counts"], dtype=np.float64), everyone, settings_.openness
        )
        self.share_ratios = np.exp(own - everyone)
        generative = client_scores.under(own, chosen.temperature)
        self.local_answer = settings_.chosen_local(bundle)
        beside, local_temperature = generative, chosen.local_temperature
        if self.local_answer is not None:
            beside = self._own_scores(self.local_answer, sums).under(own, self.local_answer.temperature)
            local_temperature = self.local_answer.local_temperature
        both = product(bundle.personal_head, beside)
        if local_temperature != 1.0:
            both = both.under(np.zeros(bundle.classes), local_temperature)
        local: Mapping[str, Head] = {"personal": bundle.personal_head, "generative": generative}
        more = () if offsets is None else (generative,)
        head = local.get(settings_.local_heads, both)
        self.heads = head, bundle.global_head, scores.under(everyone, chosen.temperature), *more
        share = chosen.generative_share
        self.global_weights = {"fedavg": (1.0, 0.0), "generative": (0.0, 1.0), "both": (1.0 - share, share)}[
            settings_.global_heads
        ]
        self._stack = stack(self.heads, settings_.precision)
        self._evidence = EVIDENCES[settings_.evidence](bundle, settings_)
        self.compares_means = offsets is not None and settings_.evidence == "label"
        self._memory = MEMORIES[settings_.memory](bundle, settings_)
        self._weight = WEIGHTS[settings_.weight]
        single = self._evidence.single and self._memory.single
        self._one_sample = (1, bundle.dimensions) if single else None
        usual = settings_.weight == "predictive" and not self.compares_means
        self._quick = self._memory if usual and single and isinstance(self._memory, ThreeRegimes) else None
        self._columns = np.stack([np.ones(bundle.classes), self.share_ratios]).T  # what weights are added up with
        self.compiled = self._compile()
        self._seen = 0

    def predict(self, batch: ArrayLike) -> Floats:
        """Return (samples, classes) probabilities for (samples, dimensions) features, in the order of the stream."""
        if self.compiled is not None:
            memory = self._memory
            assert isinstance(memory, ThreeRegimes)
            answers, self.found, after = self.compiled.answer(batch, memory.regimes)
            memory.regimes = Regimes._make(after)
            self._seen += len(answers)
            return answers
        if type(batch) is np.ndarray and batch.shape == self._one_sample and batch.dtype.kind == "f":
            return self._predict_one(batch)
        features = as_features(batch, width=self.bundle.dimensions)
        return in_parts(self, features, self._stack.rows_at_once, self._answer)

    def _compile(self) -> Compiled | None:
        """Return the compiled steps, if they were built and can do what the settings say (``_compiled.c``)."""
        settings, walk = self.settings, walk_of("btfl.methods.coherent._compiled")
        usual = (settings.evidence, settings.memory, settings.weight) == ("label", "regimes", "predictive")
        if walk is None or not usual or not suits(self.heads, settings.precision):
            return None
        memory = settings.log_tau_limit, settings.forgetting, settings.change
        options = np.array([len(self.heads), *self.global_weights, *memory, self._stack.large_above])
        plan = [options, self.share_ratios, columns_of(self.heads)]
        return Compiled(walk, plan, self.bundle.dimensions, self.bundle.classes, len(Coherent.columns))

    def _answer(self, features: Floats, answers: Floats | None) -> Floats:
        """Return (samples, classes) probabilities, written into ``answers`` if there is such an array."""
        weights, lowered = softmax_weights(self._stack.by_sample(features), self._stack.large(features))
        sums = np.matmul(weights, self._columns)
        e = self._decide(ARRAYS, features, sums.T, lowered)
        local, fedavg, generative = sums[:, :_OWN, 0].T
        shares = np.stack(self._shares(e, local, fedavg, generative), axis=1)
        return mixed(shares, weights[:, :_OWN], answers)

    def _predict_one(self, batch: NDArray[Any]) -> Floats:
        """Do the same for a single sample, to the bit, without arrays of one element.

        After a forward pass the processor has forgotten Python and numpy: every function called costs a microsecond.
        """
        features, length = as_one_sample(batch)
        heads = self._stack
        weights, lowered = softmax_weights(heads.of_one(features, length), length > heads.large_above)
        sums = weights.dot(self._columns).tolist()
        (local, _), (fedavg, _), (generative, with_ratios) = sums[:_OWN]
        if self._quick is None:
            e = self._decide(SCALARS, features, tuple(zip(*sums, strict=True)), lowered)
        else:  # the method's own parts
            limit = self.settings.log_tau_limit
            log_tau = min(max(float(np.log(with_ratios / generative)), -limit), limit)
            e, all_external = self._quick.take_one(log_tau)
            self._seen += 1
            self.found = e, log_tau, all_external
        return mixed_of_one(self._shares(e, local, fedavg, generative), weights[:_OWN])

    def _decide(self, xp: Arithmetic, features: Floats, sums: Any, lowered: Any) -> Any:
        """Return e by evidence, memory and weight.

        Parameters
        ----------
        sums : of the weights of each head's softmax: their totals, and their sums times the share ratios
        lowered : by how much each head's logits were lowered to stay in range; None if they were not
        """
        totals, with_ratios = sums
        if self.compares_means:
            log_tau = xp.log(totals[_OWN]) - xp.log(totals[_GENERATIVE])
            if lowered is not None:
                log_tau = log_tau + (lowered[..., _OWN, 0] - lowered[..., _GENERATIVE, 0])
        else:
            log_tau = self._evidence.log_tau(xp, features, with_ratios[_GENERATIVE], totals[_GENERATIVE])
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

    def _offsets(self) -> Floats | None:
        """Return how far the client's class means are from everyone's; None if clients share them."""
        statistics = self.bundle.statistics
        if self.chosen.inverse_kappa == 0 or OWN_SUMS not in statistics:
            return None
        counts = np.asarray(statistics["local_class_counts"], dtype=np.float64)
        sums = np.asarray(statistics[OWN_SUMS], dtype=np.float64)
        return own_offsets(counts, sums, everyones_sums(self.bundle), self.chosen.inverse_kappa)

    def _own_scores(self, answer: LocalAnswer, everyone: ClassSums) -> Head:
        """Return the scores of the local answer's Gaussians; everyone's sums are given with distorted copies."""
        known = self.bundle.statistics
        mine = everyone._replace(**{name: np.zeros_like(array) for name, array in everyone._asdict().items()})
        if OWN_SUMS in known:
            counts, sums = (np.asarray(known[name], dtype=np.float64) for name in ("local_class_counts", OWN_SUMS))
            mine = mine._replace(counts=counts, sums=sums)
        if answer.has_own_covariance:
            mine = mine._replace(scatter=np.asarray(known[OWN_SCATTER], dtype=np.float64))
        return own_scores(mine, Everyone.of(everyones_sums(self.bundle), everyone), answer)

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
