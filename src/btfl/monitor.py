"""A monitor: turns what a method says of a stream into alarms, at a rate of false alarms that is promised.

A method that has ``all_external`` says how probable it is that the stream has turned external; one that has
``strangeness`` says how little a sample resembles anything. How large these become on a client's own data differs
from client to client, so the levels at which to alarm are found there: streams are drawn from the client's own
validation features (or training features, or Gaussians with its sums where no features are kept), and the level is the
one that is first crossed at the promised rate. Needs numpy only, so a device can run it alone:

    monitor = Monitor(calibrate(method, own_features(bundle, method.settings)), on_alarm=print)
    for batch in stream:
        method.predict(batch)
        monitor.watch(method.trace)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.generative import everyones_sums
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Method
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.state import check_keys, count
from btfl.randomness import generator

Floats = NDArray[np.float64]

SIGNALS: Mapping[str, str] = {"all_external": "external", "strangeness": "strange", "e": "external"}
"""Columns of a trace that are watched, and what an alarm of each says; ``e`` only where there is no other."""
RATES = tuple(float(rate) for rate in np.round(np.geomspace(10, 0.03, 12), 4))
"""False alarms for 1,000 own samples at which levels are kept, so that the rate can be chosen later."""
FEWEST = 50  # own samples that say something of how a stream of them looks
_STREAM, _DRAWN = 500, 100_000  # samples of one simulated stream, and of all of them


@dataclass(frozen=True)
class MonitorSettings(Settings):
    """How alarms are raised and ended."""

    title: ClassVar[str] = "monitor"

    rate: float = knob(0.1, "False alarms promised for 1,000 samples of the client's own.", least=0.03, most=10)
    warm_up: int = knob(20, "Samples at the beginning of a stream that raise no alarm.", least=0, most=10_000)
    calm: int = knob(20, "Samples in a row below the lower level that end an alarm.", least=1, most=10_000)


class Levels(NamedTuple):
    """Where an alarm begins and ends, in the units of its signal."""

    on: float
    off: float


@dataclass(frozen=True)
class AlarmLevels:
    """Levels of each signal at each of ``RATES``, and what they were found on."""

    levels: Mapping[str, tuple[float, ...]]
    """By signal: the level of each of ``RATES``."""
    middle: Mapping[str, float]
    """By signal: its median on own streams."""
    warm_up: int
    source: str
    """Validation features, training features, or sums."""
    samples: int
    """Own samples that streams were drawn from; 0: the sums."""
    method: str
    """The method and its settings (``identity``): levels found with one are of no use for another."""

    def at(self, rate: float) -> dict[str, Levels]:
        """Return the levels for a rate of false alarms, shared out evenly among the signals."""
        share = rate / max(len(self.levels), 1)
        found = {}
        for name, levels in self.levels.items():
            on = float(np.interp(-np.log(share), -np.log(RATES), levels))
            found[name] = Levels(on, (on + self.middle[name]) / 2)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "middle": dict(self.middle),
            "warm_up": self.warm_up,
            "source": self.source,
            "samples": self.samples,
            "method": self.method,
        }

    @classmethod
    def from_json(cls, value: Any) -> AlarmLevels:
        """Return what ``to_json`` gave; anything else is an ``InputError``."""
        check_keys(value, ("levels", "middle", "warm_up", "source", "samples", "method"))
        levels, middle = value["levels"], value["middle"]
        if not isinstance(levels, Mapping) or not isinstance(middle, Mapping) or levels.keys() != middle.keys():
            raise InputError("a calibration has levels and a middle for the same signals")
        for name, each in levels.items():
            numbers = [*each, middle[name]] if isinstance(each, list) else []
            if len(numbers) != len(RATES) + 1 or not all(isinstance(one, int | float) for one in numbers):
                raise InputError(f"the calibration of {name} needs {len(RATES)} levels and a middle")
        return cls(
            {str(name): tuple(map(float, each)) for name, each in levels.items()},
            {str(name): float(each) for name, each in middle.items()},
            count("warm_up", value["warm_up"]),
            str(value["source"]),
            count("samples", value["samples"]),
            str(value["method"]),
        )


@dataclass(frozen=True)
class Own:
    """Features of a client's own to draw streams from."""

    features: Floats
    source: str
    samples: int


def own_features(bundle: ClientBundle, settings: Settings | None = None, seed: int = 0) -> Own:
    """Return the best a bundle has: validation features, else training features, else samples of its Gaussians.

    ``settings`` are the method's: Gaussians are drawn as the method itself believes in them, with its ``temperature``
    (the covariance is so much wider) and its share of ``distorted`` copies.
    """
    for part in ("validation", "train"):
        found = bundle.statistics.get(f"{part}_features")
        if found is not None and len(found) >= FEWEST:
            return Own(np.asarray(found, dtype=np.float64), {"train": "training"}.get(part, part), len(found))
    chosen = settings.chosen(bundle) if isinstance(settings, CoherentSettings) else settings  # what the data have set
    wider = float(getattr(chosen, "temperature", None) or 1.0)
    distorted = float(getattr(settings, "distorted", None) or 0.0)
    return Own(_from_sums(bundle, generator(seed, "own features from sums"), 1000, wider, distorted), "sums", 0)


def _from_sums(bundle: ClientBundle, rng: np.random.Generator, samples: int, wider: float, distorted: float) -> Floats:
    """Draw from the client's own mixture of classes, each a Gaussian with everyone's mean and covariance."""
    bundle.require("local_class_counts", by="a monitor without features of the client's own")
    sums, own = everyones_sums(bundle, distorted), np.asarray(bundle.statistics["local_class_counts"], dtype=np.float64)
    has = (sums.counts > 0) & (own > 0)
    if not has.any():
        raise InputError("the client's own class counts are all zero: there is nothing to draw own streams from")
    means = sums.sums / np.maximum(sums.counts, 1.0)[:, None]
    within = wider * (sums.scatter - (means.T * sums.counts) @ means) / sums.counts.sum()
    size, directions = np.linalg.eigh((within + within.T) / 2)
    labels = rng.choice(len(own), samples, p=np.where(has, own, 0.0) / own[has].sum())
    noise = rng.normal(size=(samples, len(size))) * np.sqrt(np.maximum(size, 0.0))
    drawn: Floats = means[labels] + noise @ directions.T
    # features after a ReLU are never negative; where everyone's are not, neither are these
    return np.maximum(drawn, 0.0) if (sums.sums >= 0).all() else drawn


def watched(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of a method's columns are watched."""
    found = tuple(name for name in ("all_external", "strangeness") if name in columns)
    return found or tuple(name for name in ("e",) if name in columns)


def identity(method: Method) -> str:
    """Return a method's name and settings as text: where it is equal, one memory and one calibration fit both."""
    told = json.dumps(method.settings.as_dict(), sort_keys=True, separators=(",", ":"))
    return f"{type(method).card().name} {told}"


def calibrate(method: Method, own: Own, warm_up: int = 20, seed: int = 0, drawn: int = _DRAWN) -> AlarmLevels:
    """Find the levels of a method's signals on streams of the client's own; the method is reset.

    Parameters
    ----------
    method : as it will be used, with its settings
    own : what streams are drawn from, with replacement (``own_features``)
    warm_up : samples at the beginning of each stream that raise no alarm
    seed : of the streams
    drawn : samples of all streams together; the lowest rate is as exact as this allows
    """
    names, rng = watched(method.columns), generator(seed, "monitor")
    length = _STREAM + warm_up
    heard: dict[str, list[Floats]] = {name: [] for name in names}
    for _ in range(max(drawn // _STREAM, 2) if names else 0):
        method.reset()
        method.predict(own.features[rng.integers(len(own.features), size=length)])
        for name in names:
            heard[name].append(np.asarray(method.trace[name][warm_up:], dtype=np.float64))
    method.reset()
    signals = {name: np.stack(values) for name, values in heard.items()}
    levels = {name: tuple(level_at(values, rate) for rate in RATES) for name, values in signals.items()}
    middle = {name: float(np.median(values)) for name, values in signals.items()}
    return AlarmLevels(levels, middle, warm_up, own.source, own.samples, identity(method))


def level_at(quiet: Floats, rate: float) -> float:
    """Return the lowest level that (streams, samples) of a signal first cross at most ``rate`` times in 1,000 samples.

    A stream is watched until its first crossing, so crossings by samples watched is the rate, as in ``btfl drift``.
    """
    highest = np.maximum.accumulate(quiet, axis=1)
    candidates = np.unique(highest)
    low, high = 0, len(candidates) - 1  # the highest is never crossed
    while low < high:
        middle = (low + high) // 2
        places = (highest <= candidates[middle]).sum(axis=1)
        crossed = places < quiet.shape[1]
        if 1000.0 * crossed.sum() / np.minimum(places + 1, quiet.shape[1]).sum() <= rate:
            high = middle
        else:
            low = middle + 1
    return float(candidates[low])


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
    calibration : the levels, from ``calibrate``
    settings : a ``MonitorSettings``; or give single settings by name
    on_alarm : called with each ``Alarm``, when it begins and when it ends

    Examples
    --------
    >>> monitor = Monitor(calibrate(method, own_features(bundle)), on_alarm=print)  # doctest: +SKIP
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
            values = trace[name]
            length = len(values)
            if self._calm[name] >= 0 or values.max() > levels.on:
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
