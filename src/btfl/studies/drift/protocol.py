"""P(EXD) as a drift detector, beside well-known ones: how soon it alarms, and how often for nothing.

A stream is internal for ``before`` samples and external for ``after``; others stay internal throughout. A detector is
given the client's bundle and the features, one sample after another: no label, and not where a sample comes from. It
alarms when its threshold is first crossed after a warm-up that all detectors have. Every threshold gives the rate of
false alarms, the share of drifts found and the delay, so that detectors are compared at equal false alarms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.randomness import generator
from btfl.studies.drift.detectors import Detector
from btfl.studies.drift.scenarios import Base, fill

Floats = NDArray[np.float64]
Alarms = NDArray[np.int64]

FILE = "drift.parquet"
RECIPE = "fedavg"
THRESHOLDS, RESAMPLED = 60, 400


@dataclass(frozen=True)
class Protocol:
    """The streams that detectors are tried on."""

    before: int = 500
    after: int = 500
    draws: int = 10
    """Streams of each kind for each client."""
    warm_up: int = 100
    """Internal samples at the beginning during which no alarm counts: KSWIN needs as many before its first test."""
    seed: int = 0
    shifted: bool = False
    """Whether the shifted streams B and D are in the pools too."""

    def __post_init__(self) -> None:
        if min(self.after, self.draws) < 1 or self.warm_up < 0:
            raise InputError("a drift needs at least one sample after it, one draw, and no negative warm-up")
        if self.before <= self.warm_up:
            raise InputError(
                f"the stream must stay internal for longer than the warm-up of {self.warm_up} samples, "
                f"not for {self.before}"
            )

    @property
    def length(self) -> int:
        """Samples of a stream."""
        return self.before + self.after


def crossings(scores: Floats, thresholds: Floats, warm_up: int) -> Alarms:
    """Return, for each threshold, the first place after the warm-up with a score above it; the length if none."""
    return warm_up + np.searchsorted(np.maximum.accumulate(scores[warm_up:]), thresholds, side="right")


def first_alarm(detector: Any, values: Sequence[float], warm_up: int) -> int:
    """Return the first place after the warm-up where a detector of the library alarms; the length if nowhere."""
    for place, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected and place >= warm_up:
            return place
    return len(values)


def streams(base: Base, protocol: Protocol) -> tuple[list[Floats], list[Floats]]:
    """Draw one client's streams as features: those that stay internal, and those that turn external."""
    sizes = {name: len(part) for name, part in base.labels.items()}
    kinds = []
    for kind, before in (("quiet", protocol.length), ("drifting", protocol.before)):
        external = np.arange(protocol.length) >= before
        rngs = (generator(protocol.seed, "drift", kind, base.number, draw) for draw in range(protocol.draws))
        picks = [fill(kind, external, sizes, rng, shifted=protocol.shifted) for rng in rngs]
        kinds.append([one.of(base.features[RECIPE]) for one in picks])
    return kinds[0], kinds[1]


@dataclass(frozen=True, eq=False)
class Record:
    """What one detector found on all streams: (clients, draws, ...) scores, or first alarms for each parameter."""

    quiet: NDArray[Any]
    drifting: NDArray[Any]


def watch(detectors: Sequence[Detector], base: Base, protocol: Protocol) -> dict[str, Record]:
    """Show one client's streams to every detector."""
    bundle = base.clients[RECIPE].bundle
    quiet, drifting = streams(base, protocol)
    found = {}
    for one in detectors:
        parts = [
            np.stack([_watch(one, one.signal(bundle, features), protocol) for features in kind])[None]
            for kind in (quiet, drifting)
        ]
        found[one.name] = Record(*parts)
    return found


def _watch(detector: Detector, values: Floats, protocol: Protocol) -> NDArray[Any]:
    if detector.make is None:
        return values
    fed = values.tolist()
    return np.array([first_alarm(detector.make(setting), fed, protocol.warm_up) for setting in detector.parameters])


def curve(detector: Detector, record: Record, protocol: Protocol) -> pd.DataFrame:
    """Return a row for each threshold: false alarms, drifts found, delay."""
    if detector.make is None:
        # from no false alarm at all to a score that is above the threshold half of the time
        heard = record.quiet[..., protocol.warm_up :]
        levels = 1 - np.append(0.0, np.geomspace(1e-5, 0.5, THRESHOLDS - 1))
        settings = np.unique(np.quantile(heard[np.isfinite(heard)], levels))[::-1]
        quiet, drifting = (
            np.apply_along_axis(crossings, -1, kind, settings, protocol.warm_up)
            for kind in (record.quiet, record.drifting)
        )
    else:
        settings, quiet, drifting = np.array(detector.parameters), record.quiet, record.drifting
    rows = [
        {"detector": detector.name, "title": detector.title, "family": detector.family, "setting": float(setting)}
        | judge(quiet[..., i], drifting[..., i], protocol)
        for i, setting in enumerate(settings)
    ]
    return pd.DataFrame(rows)


def judge(quiet: Alarms, drifting: Alarms, protocol: Protocol) -> dict[str, float]:
    """Judge first alarms, both (clients, draws) with the stream's length for none.

    A quiet stream is watched until its first alarm: false alarms by the samples watched is their rate. A drift counts
    unless the alarm came before it; the delay is in samples after the first external one, and a missed drift has the
    delay ``after``. The interval of the median is a bootstrap over clients, at 95 %.
    """
    alarmed = quiet < protocol.length
    watched = np.minimum(quiet + 1, protocol.length) - protocol.warm_up
    delays = np.where(drifting >= protocol.before, drifting - float(protocol.before), np.nan)
    rng = generator(protocol.seed, "drift bootstrap")
    resampled = delays[rng.integers(len(delays), size=(RESAMPLED, len(delays)))].reshape(RESAMPLED, -1)
    medians = _medians(resampled)
    medians = medians[~np.isnan(medians)]
    low, high = np.quantile(medians, [0.025, 0.975]) if len(medians) else (np.nan, np.nan)
    judged = delays[~np.isnan(delays)]
    return {
        "false_alarms": 1000 * float(alarmed.sum()) / float(watched.sum()),
        "quiet_alarms": float(alarmed.sum()),
        "quiet_samples": float(watched.sum()),
        "drifts": float(len(judged)),
        "detected": float((judged < protocol.after).mean()) if len(judged) else np.nan,
        "delay": float(_medians(delays.reshape(1, -1))[0]),
        "delay_low": float(low),
        "delay_high": float(high),
    }


def detect(bases: Iterable[Base], detectors: Sequence[Detector], protocol: Protocol) -> pd.DataFrame:
    """Try every detector on every client; return all curves, a row for each detector and threshold."""
    found = [watch(detectors, base, protocol) for base in bases]
    if not found:
        raise InputError("there are no clients to watch")
    return pd.concat(
        [
            curve(
                one,
                Record(
                    np.concatenate([of[one.name].quiet for of in found]),
                    np.concatenate([of[one.name].drifting for of in found]),
                ),
                protocol,
            )
            for one in detectors
        ],
        ignore_index=True,
    )


def _medians(values: Floats) -> Floats:
    """Return the median of each row without its NaN; NaN where there is nothing else."""
    ordered, count = np.sort(values, axis=1), (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    return np.asarray((ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2)
