"""What goes wrong with sensors: seven corruptions of signals, in five severities.

================  =============================================================  ============================
name              what happens                                                   severities 1 to 5
================  =============================================================  ============================
``noise``         white noise, in deviations of the channel                      0.1, 0.2, 0.35, 0.55, 0.8
``gain``          each channel too large or too small, by this factor            1.1, 1.2, 1.35, 1.55, 1.8
``offset``        each channel moved up or down, in deviations                   0.2, 0.4, 0.7, 1.0, 1.5
``dead_channel``  this share of the channels (at least one) reads zero           0.1, 0.2, 0.3, 0.4, 0.5
``clipping``      nothing beyond so many deviations from the channel's mean      2.0, 1.5, 1.0, 0.7, 0.4
``turned``        the device turned about a random axis, by this angle           10, 20, 40, 60 and 90 degrees
``sampling_rate`` sampled too fast: the window covers this share of its time     0.9, 0.8, 0.7, 0.6, 0.5
================  =============================================================  ============================

Deviations and means are of the whole dataset's channels, as they were measured. ``turned`` takes channels three by
three (x, y, z of one sensor each) and turns all of them alike, so it needs channels in a multiple of three. Each sample
is corrupted on its own. The constants are ours, set before any model was trained on such streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError, UnknownNameError
from btfl.knobs import Knob
from btfl.signals.distort import at_times
from btfl.signals.types import Signals

__all__ = ["SEVERITIES", "SIGNAL_CORRUPTIONS", "corrupt_signals", "suited"]

SEVERITIES = (1, 2, 3, 4, 5)
_SEVERITY = Knob("severity", int, 5, "Strength of a corruption.", False, least=SEVERITIES[0], most=SEVERITIES[-1])
_AXES = 3


@dataclass(frozen=True, eq=False)
class _Batch:
    """Signals, what is known of their channels, and the severity as a position."""

    signals: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    step: int

    def signs(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return 1 or -1 for each sample and channel, (n, 1, channels)."""
        count, _, channels = self.signals.shape
        return rng.choice([-1.0, 1.0], size=(count, 1, channels))


def _noise(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    size = (0.1, 0.2, 0.35, 0.55, 0.8)[batch.step]
    return batch.signals + size * batch.deviation * rng.standard_normal(batch.signals.shape)


def _gain(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    factor = (1.1, 1.2, 1.35, 1.55, 1.8)[batch.step]
    return batch.signals * factor ** batch.signs(rng)


def _offset(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    size = (0.2, 0.4, 0.7, 1.0, 1.5)[batch.step]
    return batch.signals + size * batch.deviation * batch.signs(rng)


def _dead_channel(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    count, _, channels = batch.signals.shape
    dead = max(1, round((0.1, 0.2, 0.3, 0.4, 0.5)[batch.step] * channels))
    rank = rng.random((count, 1, channels)).argsort(axis=2).argsort(axis=2)
    return np.where(rank < dead, 0.0, batch.signals)


def _clipping(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    reach = (2.0, 1.5, 1.0, 0.7, 0.4)[batch.step] * batch.deviation
    return np.clip(batch.signals, batch.mean - reach, batch.mean + reach)


def _turned(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    count, steps, channels = batch.signals.shape
    if channels % _AXES:
        raise InputError(
            f"a turned device needs channels in a multiple of 3, x, y and z of each sensor, not {channels}"
        )
    angle = np.deg2rad((10.0, 20.0, 40.0, 60.0, 90.0)[batch.step])
    axis = rng.standard_normal((count, _AXES))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    x, y, z = axis.T
    zero = np.zeros(count)
    cross = np.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]]).transpose(2, 0, 1)  # a x v = cross @ v
    turn = np.eye(_AXES) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross  # Rodrigues
    by_sensor = batch.signals.reshape(count, steps, channels // _AXES, _AXES)
    turned: NDArray[np.float64] = np.einsum("nij,ntsj->ntsi", turn, by_sensor)
    return turned.reshape(batch.signals.shape)


def _sampling_rate(batch: _Batch, rng: np.random.Generator) -> NDArray[np.float64]:
    share = (0.9, 0.8, 0.7, 0.6, 0.5)[batch.step]
    count, steps, _ = batch.signals.shape
    start = rng.random((count, 1)) * (1 - share) * (steps - 1)
    times = (start + share * np.arange(steps)).astype(np.float32)
    return at_times(batch.signals.astype(np.float32), times).astype(np.float64)


_FUNCTIONS: dict[str, Callable[[_Batch, np.random.Generator], NDArray[np.float64]]] = {
    function.__name__[1:]: function
    for function in (_noise, _gain, _offset, _dead_channel, _clipping, _turned, _sampling_rate)
}
SIGNAL_CORRUPTIONS: tuple[str, ...] = tuple(_FUNCTIONS)


def suited(channels: int) -> tuple[str, ...]:
    """Return the corruptions that signals with so many channels can have."""
    return tuple(name for name in SIGNAL_CORRUPTIONS if name != "turned" or channels % _AXES == 0)


def corrupt_signals(
    signals: Signals,
    name: str,
    severity: int,
    rng: np.random.Generator,
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
) -> Signals:
    """Return corrupted copies of a batch of signals.

    Parameters
    ----------
    signals : float32 (n, time, channels)
    name : one of ``SIGNAL_CORRUPTIONS``
    severity : 1 (slight) to 5 (strong)
    rng : source of all randomness: the same state and the same batch give the same bytes
    mean, deviation : of each channel (channels,) over the dataset, the units of noise, offset and clipping

    Example
    -------
    >>> turned = corrupt_signals(windows, "turned", 3, np.random.default_rng(0), mean, deviation)
    """
    if name not in _FUNCTIONS:
        raise UnknownNameError("corruption of signals", name, SIGNAL_CORRUPTIONS)
    _SEVERITY.check(severity)
    if signals.ndim != 3 or mean.shape != signals.shape[2:] or deviation.shape != signals.shape[2:]:
        raise InputError(
            f"signals to corrupt are (n, time, channels) with a mean and a deviation for each channel, not "
            f"{signals.shape} with {mean.shape} and {deviation.shape}"
        )
    batch = _Batch(signals.astype(np.float64), mean, deviation, severity - 1)
    return _FUNCTIONS[name](batch, rng).astype(np.float32)
