"""A memory of the stream by the rules of probability: three explanations compete, and every sample teaches.

Not in the paper; see docs/method.md, "Beyond the paper". The stream is now all internal, all external, or a mixture
with an unknown share m ~ Beta(a, b). Before each sample the explanation may have changed, with probability h, to any of
the three; then each is multiplied by how likely it makes the sample, tau being the sample's likelihood ratio:

    p <- (1 - h) p + h/3;    p_IND <- p_IND tau,    p_EXD <- p_EXD,    p_MIX <- p_MIX (m + (1 - m) tau),  m = a/(a+b)
    r = a / (a + b tau);     a <- 1 + f (a - 1) + r;    b <- 1 + f (b - 1) + 1 - r
    e = p_EXD + p_MIX r,     once the three p are made to add up to one

This is the forward pass of a hidden Markov model with three states. r is the exact posterior, under Beta(a, b), that
this sample is external; counting it softly, and fading by f a sample, is assumed-density filtering of the share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.methods.btfl import Btfl
from btfl.methods.state import read_memory

if TYPE_CHECKING:
    from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]

_THIRD = 1.0 / 3.0
_ROUNDING = 1e-9


class Regimes(NamedTuple):
    """What is remembered: probabilities of two explanations (the third has the rest), and the Beta of the mixture."""

    internal: float = _THIRD
    """P(the stream is all internal)."""
    mixture: float = _THIRD
    """P(the stream is a mixture)."""
    a: float = 1.0
    b: float = 1.0


class Judgement(NamedTuple):
    """What the memory makes of one sample; of a batch, (samples,) arrays."""

    e: Any
    """P(the sample is external)."""
    all_external: Any
    """P(the recent stream is all external)."""
    mixed: Any = None
    """P(the recent stream is a mixture); None, as what follows, where nobody asks for it."""
    a: Any = None
    b: Any = None
    """The Beta of the mixture's share that the sample was judged with."""


def step(memory: Regimes, log_tau: float, forgetting: float, change: float) -> tuple[Regimes, Judgement]:
    """Take one sample in; give the memory after it, and what it makes of the sample."""
    after, judged = _walk(memory, (log_tau,), forgetting, change)
    return after, Judgement(*judged)


def _walk(
    memory: Regimes, log_taus: Iterable[float], forgetting: float, change: float, whole: bool = True
) -> tuple[Regimes, Sequence[float]]:
    """Take samples in one after the other; give the memory after them, and the numbers of their judgements in a row.

    Plain numbers in one loop: an object for each sample would take as long as the arithmetic. Unless judgements are
    asked for as a ``whole``, they are ``e`` and ``all_external`` alone.
    """
    internal, mixture, a, b = memory
    kept, moved = 1.0 - change, change * _THIRD
    judged: list[float] = []
    for log_tau in log_taus:
        tau = math.exp(log_tau)
        evidence = a + b * tau
        share = a / evidence
        all_external = kept * (1.0 - internal - mixture) + moved
        internal = (kept * internal + moved) * tau
        mixture = (kept * mixture + moved) * (evidence / (a + b))
        total = internal + all_external + mixture
        internal, all_external, mixture = internal / total, all_external / total, mixture / total
        if whole:
            judged += all_external + mixture * share, all_external, mixture, a, b
        else:
            judged += all_external + mixture * share, all_external
        a, b = 1 + forgetting * (a - 1) + share, 1 + forgetting * (b - 1) + (1 - share)
    return Regimes(internal, mixture, a, b), judged


class Memory(Protocol):
    """How a stream is remembered."""

    single: bool
    """Whether a sample that comes alone is taken as a float."""

    def take(self, log_tau: Any, features: Floats) -> Judgement:
        """Take in one sample (a float) or a batch (an array), and judge it."""

    @property
    def state(self) -> dict[str, Any]:
        """What is remembered, as plain JSON."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""

    def reset(self) -> None:
        """Forget the stream."""


class ThreeRegimes:
    """Three explanations of the stream compete: all internal, all external, a mixture."""

    single = True

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        self._forgetting, self._change = settings.forgetting, settings.change
        self.regimes = Regimes()
        self._whole = settings.weight != "predictive" or settings.memory != "regimes"  # else the rest is not read

    def take(self, log_tau: Any, features: Floats) -> Judgement:
        """Take in one sample, or a batch one after the other."""
        if isinstance(log_tau, float):
            self.regimes, judged = _walk(self.regimes, (log_tau,), self._forgetting, self._change)
            return Judgement(*judged)
        whole = self._whole
        self.regimes, judged = _walk(self.regimes, log_tau.tolist(), self._forgetting, self._change, whole)
        return Judgement(*np.fromiter(judged, np.float64, len(judged)).reshape(-1, 5 if whole else 2).T)

    def take_one(self, log_tau: float) -> Sequence[float]:
        """Take in one sample, and return its e and ``all_external`` alone."""
        self.regimes, judged = _walk(self.regimes, (log_tau,), self._forgetting, self._change, whole=False)
        return judged

    @property
    def state(self) -> dict[str, Any]:
        """Two probabilities and the mixture's Beta."""
        return self.regimes._asdict()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        # each sample adds at most 1, and f of it survives
        most = (1.0 + 1.0 / (1.0 - self._forgetting)) * (1.0 + _ROUNDING)
        counts = (1.0 - _ROUNDING, most)
        saved = read_memory(state, {"internal": (0.0, 1.0), "mixture": (0.0, 1.0), "a": counts, "b": counts})
        memory = Regimes(*(saved[name] for name in Regimes._fields))
        if memory.internal + memory.mixture > 1 + _ROUNDING or memory.a + memory.b > 1.0 + most:
            raise InputError(f"the state is out of range: no stream leads to {dict(state)} with these settings")
        self.regimes = memory

    def reset(self) -> None:
        """Forget the stream."""
        self.regimes = Regimes()


class MixtureAlone(ThreeRegimes):
    """The mixture is the only explanation (ablation)."""

    single = False

    def take(self, log_tau: Any, features: Floats) -> Judgement:
        """Take in a batch; e is the mixture's."""
        judged = super().take(log_tau, features)
        return _of_mixture(judged.a, judged.b, log_tau)


class GatedEvents:
    """The paper's memory: events that a likelihood test and two entropy tests agree on (ablation)."""

    single = False

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        self._paper = Btfl(bundle, precision=settings.precision)

    def take(self, log_tau: Any, features: Floats) -> Judgement:
        """Take in a batch; e is that of a mixture with the counted events."""
        self._paper.predict(features)
        return _of_mixture(self._paper.trace["a"], self._paper.trace["b"], log_tau)

    @property
    def state(self) -> dict[str, Any]:
        """The Beta of the events."""
        return self._paper.state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self._paper.restore(state)

    def reset(self) -> None:
        """Forget the stream."""
        self._paper.reset()


def _of_mixture(a: Floats, b: Floats, log_tau: Floats) -> Judgement:
    return Judgement(a / (a + b * np.exp(log_tau)), np.zeros_like(a), np.ones_like(a), a, b)


MEMORIES: Mapping[str, Callable[[ClientBundle, CoherentSettings], Memory]] = {
    "regimes": ThreeRegimes,
    "soft": MixtureAlone,
    "events": GatedEvents,
}
