"""Every knob of BTFL. ``paper`` and ``release`` are two presets of the same knobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from btfl.core.likelihood import Smoothing
from btfl.core.products import PRECISION_HELP, Precision
from btfl.errors import InputError, UnknownNameError
from btfl.knobs import Settings, knob


@dataclass(frozen=True)
class BtflSettings(Settings):
    """How BTFL decides; the defaults are the preset ``paper``.

    ``release`` is what the authors' public program does. Change single knobs with
    ``BtflSettings.preset("paper", count="after")``. `btfl methods btfl` lists all settings, ``knobs()`` returns them.

    Example
    -------
    >>> BtflSettings(prune_above=5.0).prune_above
    5.0
    """

    title: ClassVar[str] = "BTFL"
    of_arithmetic: ClassVar[tuple[str, ...]] = ("precision",)

    smoothing: Smoothing = knob("add-one", "How frequencies are kept from 0 and 1: squeeze is 0.6 p + 0.2 (release).")
    global_from: Literal["all", "others"] = knob("all", "Whose likelihood is the global one; others: release.")
    count: Literal["before", "after"] = knob(
        "before", "Whether a sample's event is counted before or after (release) it is predicted."
    )
    batch: Literal["sample", "batch"] = knob(
        "sample", "One by one, however the stream is cut; or one prior for a batch (release)."
    )
    # the prior itself, Beta(1, 1), already sums to 2
    prune_above: float = knob(16.0, "lambda: the history is pruned when a + b exceeds it.", least=2)
    prune_to: float = knob(
        1.0, "Events' worth of history that survive a prune: a <- 1 + prune_to a/(a+b). Release: lambda/10.", least=0
    )
    global_entropy_scale: float | None = knob(
        None, "What stands for Hbar_g in u_g; none: the client's own mean. Release: log(100).", least=1e-12
    )
    squash: float | None = knob(
        None, "k of the release's bound on tau_hat: s -> k tanh(s - 1) + 1 for s > 1, mirrored below.", least=1e-12
    )
    expectation: Literal["exact", "trapezoid"] = knob(
        "exact", "e to 1e-12, or by the release's 100-point trapezoid on [0.01, 0.99]."
    )
    mix: Literal["probabilities", "log-probabilities"] = knob(
        "probabilities", "What e mixes; log-probabilities (release) are normalised again."
    )
    entropy_floor: float = knob(
        1e-3, "Mean entropies (nats) below this count as this: a client with one class has none.", least=1e-12
    )
    log_u_limit: float = knob(20.0, "Upper limit of log u; above 300 it would overflow.", least=0, most=300)
    log_tau_limit: float = knob(30.0, "Limit of |log tau_hat|; above 600 it would overflow.", least=0, most=600)
    use_history: bool = knob(True, "Off: the prior stays Beta(1, 1) (ablation).")
    use_characteristic: bool = knob(True, "Off: tau_hat = 1, the sample itself says nothing (ablation).")
    use_entropy: bool = knob(True, "Off: u = 1, and events need no entropy test (ablation).")

    precision: Precision = knob("same-bits", PRECISION_HELP)

    def check(self) -> None:
        """Refuse a prune that leaves too much."""
        if self.prune_to + 2.0 > self.prune_above:
            raise InputError(
                f"prune_to = {self.prune_to} leaves a + b = {self.prune_to + 2}, which is already above "
                f"prune_above = {self.prune_above}"
            )

    @classmethod
    def make(cls, *, preset: str = "paper", **changes: Any) -> Self:
        """Return a preset with single knobs changed."""
        presets: dict[str, dict[str, Any]] = {"paper": {}, "release": _release(changes)}
        if preset not in presets:
            raise UnknownNameError("preset", str(preset), presets)
        return super().make(**{**presets[preset], **changes})

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """Return the preset ``paper`` or ``release``, with single knobs changed."""
        return cls.make(preset=name, **changes)

    @property
    def suits_single_samples(self) -> bool:
        """Whether a sample that comes alone can be decided in plain floats; the release's own ways with e cannot."""
        return self.squash is None and self.expectation == "exact" and self.mix == "probabilities"


def _release(changes: dict[str, Any]) -> dict[str, Any]:
    """The published program: lambda is 5 for the CNN, 50 for OfficeHome, 300 for ImageNet and CCT."""
    prune_above = changes.get("prune_above", 5.0)
    return {
        "smoothing": "squeeze",
        "global_from": "others",
        "count": "after",
        "batch": "batch",
        "prune_above": prune_above,
        "prune_to": prune_above / 10 if isinstance(prune_above, int | float) else prune_above,
        "global_entropy_scale": math.log(100),
        "squash": 4.0,
        "mix": "log-probabilities",
    }
