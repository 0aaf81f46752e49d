"""BTFL (Zhou and Liu, KDD 2025): how much to trust each head, decided for every sample with no optimisation.

It reads like the paper: look at what both heads and both likelihoods say (TI), update the memory of the stream (HBU),
rectify the sample's own evidence (CBU), take the expectation and mix the heads (DPI). The decision is written once, for
a batch and for a sample that comes alone (``core/arithmetic.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_one_sample
from btfl.core.arithmetic import ARRAYS, SCALARS, Arithmetic
from btfl.core.bundle import ClientBundle
from btfl.core.compiled import Compiled, columns_of, suits, walk_of
from btfl.core.heads import stack
from btfl.core.likelihood import THRESHOLD, LikelihoodPair
from btfl.core.softmax import entropy_of_parts, log_softmax, mixed, mixed_of_one, softmax_parts
from btfl.errors import InputError
from btfl.knobs import Settings
from btfl.methods.base import Brings, Client, Column, Method, Trace
from btfl.methods.btfl import memory
from btfl.methods.btfl.evidence import log_rectified_ratio
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.btfl.trapezoid import published_weight
from btfl.methods.btfl.weight import LONGEST_MEMORY, ExpectedWeight, grid_for
from btfl.methods.card import RED, Card
from btfl.methods.parts import in_parts
from btfl.methods.state import read_memory

Floats = NDArray[np.float64]
_PERSONAL, _GLOBAL = 0, 1  # places in the stack of heads
_ROUNDING = 1e-9  # what pruning leaves may be above its limit by so much


class BtflTrace(Trace):
    """A trace that also has the ratios themselves."""

    @property
    def tau(self) -> Floats:
        """Q_l / Q_g, kept within what a float can hold."""
        return np.asarray(np.exp(np.clip(self["log_tau"], -700.0, 700.0)))

    @property
    def tau_hat(self) -> Floats:
        """The rectified ratio."""
        return np.asarray(np.exp(self["log_tau_hat"]))


class Btfl(Method):
    """Weighs a client's two heads by what the stream has looked like and by what the sample says.

    Parameters
    ----------
    client : a ``ClientBundle``, or a client with one
    settings : a ``BtflSettings``; or give ``preset`` and single settings by name

    Examples
    --------
    >>> method = Btfl(bundle)                            # doctest: +SKIP
    >>> method.predict(features)                         # doctest: +SKIP
    >>> method.trace.e                                   # doctest: +SKIP
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "btfl",
            "BTFL",
            "mixes both heads by a memory of the stream and the sample's evidence, in closed form",
            "Zhou and Liu, KDD 2025",
            RED,
            "o",
        ),
        Card(
            "btfl-release", "BTFL (release)", colour=RED, marker="o open", line="dashed", settings={"preset": "release"}
        ),
    )
    settings_class: ClassVar[type[Settings]] = BtflSettings
    columns: ClassVar[Mapping[str, Column]] = {
        "e": Column("weight of the global head"),
        "log_tau": Column("log(Q_l / Q_g), the raw likelihood ratio"),
        "log_tau_hat": Column("the rectified ratio"),
        "event": Column("+1 for an external event, -1 for an internal one, 0 for none", np.int8),
        "a": Column("first parameter of the Beta that the sample was judged with: external events"),
        "b": Column("second parameter: internal events"),
        "local_entropy": Column("entropy of the personal head, in nats"),
        "global_entropy": Column("entropy of the global head, in nats"),
    }
    exportable: ClassVar[bool] = True
    enrols: ClassVar[Brings] = "nothing"
    memory_outlives_bundle: ClassVar[bool] = True
    settings: BtflSettings

    compiled: Compiled | None
    """Its steps as they were compiled; None where numpy does them."""

    def __init__(self, client: Client | ClientBundle, settings: BtflSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        bundle = self.bundle
        self._heads = stack([bundle.personal_head, bundle.global_head], self.settings.precision)
        everyone = bundle.global_likelihood
        if self.settings.global_from == "others":
            everyone = everyone.without(bundle.local_likelihood)
        self._likelihoods = LikelihoodPair(bundle.local_likelihood, everyone, self.settings.smoothing)
        local_mean, global_mean = bundle.mean_entropies
        self._means = max(local_mean, self.settings.entropy_floor), max(global_mean, self.settings.entropy_floor)
        exact = self.settings.expectation == "exact"
        self._expected_weight = ExpectedWeight(self.settings.prune_above) if exact else published_weight
        self._dimensions = bundle.dimensions
        self._one_sample = (1, bundle.dimensions) if self.settings.suits_single_samples else None
        self.compiled = self._compile()
        self._memory = memory.Beta()
        self._seen = 0

    def predict(self, batch: ArrayLike) -> Floats:
        """Return (samples, classes) probabilities for (samples, dimensions) features, in the order of the stream."""
        if self.compiled is not None:
            answers, self.found, after = self.compiled.answer(batch, self._memory)
            self._memory = memory.Beta._make(after)
            self._seen += len(answers)
            return answers
        if type(batch) is np.ndarray and batch.shape == self._one_sample and batch.dtype.kind == "f":
            return self._predict_one(batch)
        features = as_features(batch, width=self.bundle.dimensions)
        whole = self.settings.batch == "batch"  # one prior for all of them
        return in_parts(self, features, len(features) if whole else self._heads.rows_at_once, self._answer)

    def _compile(self) -> Compiled | None:
        """Return the compiled steps, if they were built and can do what the settings say (``_compiled.c``)."""
        settings, bundle, walk = self.settings, self.bundle, walk_of("btfl.methods.btfl._compiled")
        heads, usual = (bundle.personal_head, bundle.global_head), settings.suits_single_samples
        if walk is None or not usual or settings.batch == "batch" or settings.prune_above > LONGEST_MEMORY:
            return None
        if not suits(heads, settings.precision):
            return None
        grid, pair = grid_for(settings.prune_above), self._likelihoods
        points = [grid.log_m, grid.log_rest, grid.log_widths, grid.odds_against]
        scales = self._means[0], settings.global_entropy_scale or self._means[1]
        limits = THRESHOLD, settings.log_u_limit, settings.log_tau_limit, settings.prune_above, settings.prune_to
        uses = settings.count == "before", settings.use_history, settings.use_characteristic, settings.use_entropy
        options = [len(grid.log_m), *self._means, *scales, *pair.offsets, *limits, *uses, self._heads.large_above]
        plan = [np.array(options, dtype=np.float64), *points, pair.odds.T, columns_of(heads)]
        return Compiled(walk, plan, bundle.dimensions, bundle.classes, len(self.columns))

    def _answer(self, features: Floats, answers: Floats | None) -> Floats:
        """Return (samples, classes) probabilities, written into ``answers`` if there is such an array."""
        logits = self._heads.by_sample(features)
        mixes_logits = self.settings.mix == "log-probabilities"
        own = logits.copy() if mixes_logits else logits
        weights, totals, shifted = softmax_parts(own, self._heads.large(features))
        local_entropy, global_entropy = np.ascontiguousarray(entropy_of_parts(weights, totals, shifted).T)
        e = self._decide(ARRAYS, self._likelihoods.log_q(features), (local_entropy, global_entropy))
        self._seen += len(features)
        if mixes_logits:
            # logits are log-probabilities but for a constant of the sample, which normalising takes out
            scores = e[:, None] * logits[:, _GLOBAL] + (1.0 - e)[:, None] * logits[:, _PERSONAL]
            return np.exp(log_softmax(scores), answers)
        return mixed(np.stack([1.0 - e, e], axis=1) / totals, weights, answers)

    def _predict_one(self, batch: NDArray[Any]) -> Floats:
        """Do the same for a single sample, to the bit, without arrays of one element."""
        features, length = as_one_sample(batch)
        heads = self._heads
        weights, totals, logits = softmax_parts(heads.of_one(features, length), length > heads.large_above)
        local_total, global_total = totals.tolist()
        local_log, global_log = np.log(totals).tolist()
        local_product, global_product = np.vecdot(weights, logits).tolist()
        entropies = (
            max(local_log - local_product / local_total, 0.0),
            max(global_log - global_product / global_total, 0.0),
        )
        e = self._decide(SCALARS, self._likelihoods.log_q_of_one(features), entropies)
        self._seen += 1
        return mixed_of_one(((1.0 - e) / local_total, e / global_total), weights)

    def _decide(self, xp: Arithmetic, log_q: tuple[Any, Any], entropies: tuple[Any, Any]) -> Any:
        """Return e from the log likelihoods and entropies, local first; the memory goes on, and the trace is kept."""
        settings, (local_mean, global_mean) = self.settings, self._means
        log_tau = log_q[0] - log_q[1]
        event = memory.detect(xp, log_tau, entropies[0] - local_mean, entropies[1] - global_mean, settings)
        a, b, self._memory = memory.take(self._memory, event, settings)
        log_tau_hat = log_rectified_ratio(xp, log_q, entropies, self._means, self._dimensions, settings)
        e = self._expected_weight(a, b, log_tau_hat)
        self.found = e, log_tau, log_tau_hat, event, a, b, *entropies
        return e

    @property
    def trace(self) -> BtflTrace:
        """Why each sample of the last ``predict`` was decided so: ``columns``, and ``tau`` and ``tau_hat``."""
        return BtflTrace(self._traced())

    @property
    def state(self) -> dict[str, Any]:
        """The memory of the stream: small, and plain JSON, so that a device can be switched off and go on."""
        return {"a": self._memory.a, "b": self._memory.b, "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        total = (self.settings.prune_above if self.settings.use_history else 2.0) + _ROUNDING
        saved = read_memory(state, {"a": (1.0, total - 1.0), "b": (1.0, total - 1.0)})
        if saved["a"] + saved["b"] > total:
            raise InputError(
                f"the state is out of range: a + b = {saved['a'] + saved['b']:g}, but these settings prune above "
                f"{self.settings.prune_above:g}"
            )
        self._memory, self._seen, self.found = memory.Beta(saved["a"], saved["b"]), state["seen"], None

    def reset(self) -> None:
        """Forget the stream."""
        self._memory, self._seen, self.found = memory.Beta(), 0, None
