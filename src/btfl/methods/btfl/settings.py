"""Every knob of the method. ``paper`` and ``release`` are two presets of the same knobs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from btfl.core.likelihood import Smoothing
from btfl.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class BayesianSettings:
    """How BTFL decides; the defaults are the preset ``paper``.

    ``release`` is what the authors' public program does. Change single knobs with
    ``BayesianSettings.preset("paper", count="after")``.
    """

    smoothing: Smoothing = "add-one"
    """How frequencies are kept from 0 and 1: ``add-one`` (paper) or ``squeeze``, 0.6 p + 0.2 (release)."""
    global_from: Literal["all", "others"] = "all"
    """Whose DLE is the global one: all clients' (paper), or all but this client's (release)."""
    count: Literal["before", "after"] = "before"
    """Whether a sample's event is counted before (paper) or after (release) it is predicted."""
    batch: Literal["sample", "batch"] = "sample"
    """``sample``: one by one, however the stream is cut (paper); ``batch``: one prior a batch (release)."""
    prune_above: float = 16.0
    """lambda: the history is pruned when a + b exceeds it."""
    prune_to: float = 1.0
    """How many events' worth of history survive a prune: a <- 1 + prune_to * a/(a+b). Release: lambda/10."""
    global_entropy_scale: float | None = None
    """What stands for Hbar_g in u_g: None for the client's own mean (paper), log(100) in the release."""
    squash: float | None = None
    """The release's bound on tau_hat: s -> k tanh(s - 1) + 1 for s > 1 and the mirror below, k = 4. None: off."""
    expectation: Literal["exact", "trapezoid"] = "exact"
    """e in closed form, or by the release's 100-point trapezoid on [0.01, 0.99], to match its digits."""
    mix: Literal["probabilities", "log-probabilities"] = "probabilities"
    """What e mixes; log-probabilities (release) are normalised again afterwards."""
    entropy_floor: float = 1e-3
    """Mean entropies (nats) below this count as this: a client with one class has an entropy of zero."""
    log_u_limit: float = 20.0
    """Upper limit of log u."""
    log_tau_limit: float = 30.0
    """Limit of |log tau_hat|."""
    use_history: bool = True
    """Off: the prior stays Beta(1, 1) (ablation)."""
    use_characteristic: bool = True
    """Off: tau_hat = 1, the sample itself says nothing (ablation)."""
    use_entropy: bool = True
    """Off: u = 1, and events need no entropy test (ablation)."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(hints[field.name])
            if choices and isinstance(choices[0], str) and value not in choices:
                raise InputError(f"{field.name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
        for name, least in (
            ("prune_above", 2.0),  # the prior itself, Beta(1, 1), already sums to 2
            ("prune_to", 0.0),
            ("entropy_floor", 1e-12),
            ("log_u_limit", 0.0),
            ("log_tau_limit", 0.0),
        ):
            self._check_number(name, getattr(self, name), least)
        for name in ("global_entropy_scale", "squash"):
            if getattr(self, name) is not None:
                self._check_number(name, getattr(self, name), 1e-12)
        if self.log_u_limit > 300 or self.log_tau_limit > 600:
            raise InputError("log_u_limit above 300 or log_tau_limit above 600 would overflow")
        if self.prune_to + 2.0 > self.prune_above:
            raise InputError(
                f"prune_to = {self.prune_to} leaves a + b = {self.prune_to + 2}, which is already above "
                f"prune_above = {self.prune_above}"
            )

    @staticmethod
    def _check_number(name: str, value: object, least: float) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
            raise InputError(f"{name} must be a finite number of at least {least}, not {value!r}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> BayesianSettings:
        """Return the preset ``paper`` or ``release``, with single knobs changed."""
        presets: dict[str, dict[str, Any]] = {"paper": {}, "release": _release(changes)}
        if name not in presets:
            raise UnknownNameError("preset", name, presets)
        known = {field.name for field in fields(cls)}
        for change in changes:
            if change not in known:
                raise UnknownNameError("setting of BTFL", change, known)
        return replace(cls(), **{**presets[name], **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for JSON."""
        return asdict(self)


def _release(changes: dict[str, Any]) -> dict[str, Any]:
    """The published program: lambda is 5 for the CNN, 50 for OfficeHome, 300 for ImageNet and CCT."""
    prune_above = changes.get("prune_above", 5.0)
    return {
        "smoothing": "squeeze",
        "global_from": "others",
        "count": "after",
        "batch": "batch",
        "prune_above": prune_above,
        "prune_to": prune_above / 10,
        "global_entropy_scale": math.log(100),
        "squash": 4.0,
        "mix": "log-probabilities",
    }
