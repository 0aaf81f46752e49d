"""Levels at which to alarm, found on streams of a client's own so that they are crossed at a promised rate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.methods.base import Method
from btfl.methods.state import check_keys, count
from btfl.monitor.own import Own, own_features
from btfl.randomness import generator

Floats = NDArray[np.float64]
RATES = tuple(float(rate) for rate in np.round(np.geomspace(10, 0.03, 12), 4))
"""False alarms for 1,000 own samples at which levels are kept, so that the rate can be chosen later."""
CARRIED = "alarm_levels"
"""Among a bundle's metadata: levels that were found where features were at hand, as a list of plain JSON."""
_STREAM, _DRAWN = 500, 100_000  # samples of one simulated stream, and of all of them
_ALONE = ("strangeness",)  # signals of single samples, whatever came before: drawing streams would tell nothing more
_TAIL = 0.1  # the share of own samples, the largest, that says how rare larger ones are


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

    @property
    def approximate(self) -> bool:
        """Whether they were found on Gaussians with the client's sums: the promised rate is then not kept exactly."""
        return self.source == "sums"

    def fits(self, method: Method, warm_up: int) -> bool:
        """Return whether they are for this method, with its settings."""
        return self.method == identity(method) and self.warm_up == warm_up

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


def watched(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of a method's columns are watched."""
    found = tuple(name for name in ("all_external", "strangeness", "strange_stream") if name in columns)
    return found or tuple(name for name in ("e",) if name in columns)


def identity(method: Method) -> str:
    """Return a method's name and settings as text: where it is equal, one memory and one calibration fit both."""
    settings = method.settings
    decisive = {name: value for name, value in settings.as_dict().items() if name not in settings.of_arithmetic}
    told = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
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
    every = watched(method.columns)
    names, rng = tuple(name for name in every if name not in _ALONE), generator(seed, "monitor")
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
    if alone := [name for name in every if name in _ALONE]:
        method.predict(own.features)
        for name in alone:
            signals[name] = np.asarray(method.trace[name], dtype=np.float64)
            levels[name] = tuple(level_alone(signals[name], rate) for rate in RATES)
        method.reset()
    middle = {name: float(np.median(values)) for name, values in signals.items()}
    for name in method.widening.keys() & levels.keys():
        levels[name] = tuple(method.widening[name] * level for level in levels[name])
        middle[name] *= method.widening[name]
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


def level_alone(own: Floats, rate: float) -> float:
    """Return the level that samples exceed ``rate`` times in 1,000, for a signal that says something of one alone.

    It may be beyond all own samples (samples,): their largest tenth continues as an exponential tail.
    """
    begins = float(np.quantile(own, 1.0 - _TAIL))
    beyond = own[own > begins] - begins
    return begins + float(beyond.mean() if len(beyond) else 0.0) * float(np.log(1000.0 * _TAIL / rate))


def carrying(bundle: ClientBundle, *levels: AlarmLevels) -> ClientBundle:
    """Return a bundle that takes levels along, in place of any that it has; it can then do without features."""
    return replace(bundle, metadata={**bundle.metadata, CARRIED: [each.to_json() for each in levels]})


def carried_levels(bundle: ClientBundle) -> tuple[AlarmLevels, ...]:
    """Return the levels that a bundle takes along; older bundles have none."""
    found = bundle.metadata.get(CARRIED, [])
    if not isinstance(found, list):
        raise InputError(f"{CARRIED} among the bundle's metadata is a list of levels")
    return tuple(AlarmLevels.from_json(each) for each in found)


def levels_for(method: Method, bundle: ClientBundle, warm_up: int = 20, drawn: int = _DRAWN) -> AlarmLevels:
    """Return the levels that a bundle takes along for a method; if it has none, find them on what it holds.

    From sums alone they are ``approximate``. The method is reset.

    Parameters
    ----------
    method : as it will be used, with its settings
    bundle : the client's; the method may have been built on one that lacks the features
    warm_up : samples at the beginning of a stream that raise no alarm
    drawn : samples of all streams together, if levels are to be found
    """
    fitting = (each for each in carried_levels(bundle) if each.fits(method, warm_up))
    return next(fitting, None) or calibrate(method, own_features(bundle, method.settings), warm_up, drawn=drawn)
