"""The monitor itself: watches the trace of one stream, and says when an alarm begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.state import check_keys, count
from btfl.monitor.levels import AlarmLevels, Levels

SIGNALS: Mapping[str, str] = {
    "all_external": "external",
    "strangeness": "strange",
    "strange_stream": "strange",
    "looks": "strange",
    "e": "external",
}
"""Signals, and what an alarm of each says: columns of a trace (``e`` only where there is no other), and ``Looks``."""


@dataclass(frozen=True)
class MonitorSettings(Settings):
    """How alarms are raised and ended."""

    title: ClassVar[str] = "monitor"

    rate: float = knob(0.1, "False alarms promised for 1,000 samples of the client's own.", least=0.03, most=10)
    warm_up: int = knob(20, "Samples at the beginning of a stream that raise no alarm.", least=0, most=10_000)
    calm: int = knob(20, "Samples in a row below the lower level that end an alarm.", least=1, most=10_000)


@dataclass(frozen=True)
class Alarm:
    """A stream turned, or turned back."""

    signal: str
    """Which column crossed its level."""
    kind: str
    """What that means: ``external`` or ``strange``."""
    begins: bool
    """Whether the alarm begins; else it ends."""
    sample: int
    """The sample of the stream at which it did, counted from 0."""
    value: float
    """The signal there."""
    level: float
    """The level it crossed."""


class Monitor:
    """Watches one stream of one client.

    Parameters
    ----------
    calibration : the levels, from ``levels_for``
    settings : a ``MonitorSettings``; or give single settings by name
    on_alarm : called with each ``Alarm``, when it begins and when it ends

    Examples
    --------
    >>> monitor = Monitor(levels_for(method, bundle), on_alarm=print)      # doctest: +SKIP
    >>> method.predict(features)                                           # doctest: +SKIP
    >>> monitor.watch(method.trace)                                        # doctest: +SKIP
    """

    def __init__(
        self,
        calibration: AlarmLevels,
        settings: MonitorSettings | None = None,
        on_alarm: Callable[[Alarm], object] | None = None,
        **changes: Any,
    ) -> None:
        self.settings = MonitorSettings.make(**changes) if settings is None else settings
        self.calibration, self._on_alarm = calibration, on_alarm
        self.levels = calibration.at(self.settings.rate)
        self.reset()

    def reset(self) -> None:
        """Forget the stream."""
        self.seen = 0
        self._calm = dict.fromkeys(self.levels, -1)  # -1: no alarm; else how many samples in a row were calm

    @property
    def alarmed(self) -> tuple[str, ...]:
        """The kinds of the alarms that are on."""
        return tuple(dict.fromkeys(SIGNALS[name] for name, calm in self._calm.items() if calm >= 0))

    def watch(self, trace: Mapping[str, NDArray[Any]]) -> list[Alarm]:
        """Take in the trace of the next samples, and return the alarms that began or ended with them."""
        found: list[Alarm] = []
        length = 0
        for name, levels in self.levels.items():
            try:
                values = trace[name]
            except KeyError:
                raise InputError(
                    f"the trace has no '{name}', which this monitor has levels for, only "
                    f"{', '.join(trace) or 'nothing'}: levels are for one method, levels_for(method, bundle)"
                ) from None
            length = len(values)
            if self._calm[name] < 0:
                crosses = values.max() > levels.on
            elif values.min() >= levels.off:  # not calm at all: there is nothing to count
                crosses, self._calm[name] = False, 0
            else:
                crosses = True
            if crosses:
                found += self._walk(name, levels, values.tolist())
        self.seen += length
        if len(self.levels) > 1:
            found.sort(key=lambda alarm: alarm.sample)
        if self._on_alarm is not None:
            for alarm in found:
                self._on_alarm(alarm)
        return found

    def _walk(self, name: str, levels: Levels, values: list[float]) -> list[Alarm]:
        found, calm = [], self._calm[name]
        for place, value in enumerate(values, self.seen):
            if calm < 0:
                if value > levels.on and place >= self.settings.warm_up:
                    calm = 0
                    found.append(Alarm(name, SIGNALS[name], True, place, value, levels.on))
                continue
            calm = calm + 1 if value < levels.off else 0
            if calm >= self.settings.calm:
                calm = -1
                found.append(Alarm(name, SIGNALS[name], False, place, value, levels.off))
        self._calm[name] = calm
        return found

    @property
    def state(self) -> dict[str, Any]:
        """What it remembers of the stream, as plain JSON."""
        return {"seen": self.seen, "calm": dict(self._calm)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; signals that it does not know begin without an alarm."""
        check_keys(state, ("seen", "calm"))
        if not isinstance(state["calm"], Mapping):
            raise InputError("calm in the state of a monitor has a number for each signal")
        self.seen = count("seen", state["seen"])
        for name in self._calm:
            value = state["calm"].get(name, -1)
            self._calm[name] = -1 if value == -1 else count(name, value)
