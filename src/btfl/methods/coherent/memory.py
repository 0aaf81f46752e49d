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
from collections.abc import Callable, Mapping
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
    mixed: Any
    """P(the recent stream is a mixture)."""
    a: Any
    b: Any
    """The Beta of the mixture's share that the sample was judged with."""


def step(memory: Regimes, log_tau: float, forgetting: float, change: float) -> tuple[Regimes, Judgement]:
    """Take one sample in; give the memory after it, and what it makes of the sample."""
    internal, mixture, a, b, e, all_external = _advance(*memory, log_tau, forgetting, change)
    return Regimes(internal, mixture, a, b), Judgement(e, all_external, mixture, memory.a, memory.b)


def _advance(
    internal: float, mixture: float, a: float, b: float, log_tau: float, forgetting: float, change: float
) -> tuple[float, float, float, float, float, float]:
    """Return the memory after a sample, e and P(all external): plain numbers, of which a batch takes many."""
    tau = math.exp(log_tau)
    evidence = a + b * tau
    share = a / evidence
    kept, moved = 1.0 - change, change * _THIRD
    all_external = kept * (1.0 - internal - mixture) + moved
    internal = (kept * internal + moved) * tau
    mixture = (kept * mixture + moved) * (evidence / (a + b))
    total = internal + all_external + mixture
    internal, all_external, mixture = internal / total, all_external / total, mixture / total
    a, b = 1 + forgetting * (a - 1) + share, 1 + forgetting * (b - 1) + (1 - share)
    return internal, mixture, a, b, all_external + mixture * share, all_external


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
        self._memory = Regimes()

    def take(self, log_tau: Any, features: Floats) -> Judgement:
        """Take in one sample, or a batch one after the other."""
        if isinstance(log_tau, float):
            self._memory, judgement = step(self._memory, log_tau, self._forgetting, self._change)
            return judgement
        (internal, mixture, a, b), forgetting, change = self._memory, self._forgetting, self._change
        judged: list[float] = []  # five numbers a sample, one after the other: quicker than a tuple each
        for value in log_tau.tolist():
            after = _advance(internal, mixture, a, b, value, forgetting, change)
            internal, mixture, _, _, e, all_external = after
            judged.extend((e, all_external, mixture, a, b))
            _, _, a, b, _, _ = after
        self._memory = Regimes(internal, mixture, a, b)
        return Judgement(*np.fromiter(judged, np.float64, len(judged)).reshape(-1, len(Judgement._fields)).T)

    @property
    def state(self) -> dict[str, Any]:
        """Two probabilities and the mixture's Beta."""
        return self._memory._asdict()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        # each sample adds at most 1, and f of it survives
        most = (1.0 + 1.0 / (1.0 - self._forgetting)) * (1.0 + _ROUNDING)
        counts = (1.0 - _ROUNDING, most)
        saved = read_memory(state, {"internal": (0.0, 1.0), "mixture": (0.0, 1.0), "a": counts, "b": counts})
        memory = Regimes(*(saved[name] for name in Regimes._fields))
        if memory.internal + memory.mixture > 1 + _ROUNDING or memory.a + memory.b > 1.0 + most:
            raise InputError(f"the state is out of range: no stream leads to {dict(state)} with these settings")
        self._memory = memory

    def reset(self) -> None:
        """Forget the stream."""
        self._memory = Regimes()


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
        self._paper = Btfl(bundle)

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
