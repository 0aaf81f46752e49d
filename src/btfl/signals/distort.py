"""Variants of a signal that a person would still call the same: AugMix's idea (Hendrycks et al., ICLR 2020) in time.

Each variant is the signal, mixed with three chains of one to three operations: warping of time and of size, a shift in
time, smoothing, and a short hold. None of these is a corruption that the benchmark tests with. A level is up to 1 at
the default strength; the constants below are for level 5, which is what clients add up beside their samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from btfl.signals.types import Signals

CHAINS, LONGEST = 3, 3
_AT_ONCE = 500  # signals whose chains are in memory together
_STRONGEST = 5.0
_MOVED = 0.1  # share of the window by which level 5 moves a moment in time, or holds a value
_RESIZED = 0.3  # by which level 5 makes a part of the window larger or smaller
_SMOOTHED = 5  # steps of the moving average that level 5 puts in the place of the signal

Drawn = NDArray[np.float32]  # (n,)
Operation = Callable[[Signals, Drawn, Drawn], Signals]
"""(signals, levels, phases) -> signals: levels are ±(0.1 .. strength), phases 0..1."""


def distorted(signals: Signals, rng: np.random.Generator, strength: float = 1.0) -> Signals:
    """Return one variant of each signal (n, time, channels), of operations at levels up to ``strength``, at most 5."""
    parts = [_variants(signals[i : i + _AT_ONCE], rng, strength) for i in range(0, len(signals), _AT_ONCE)]
    return np.concatenate(parts) if parts else signals.copy()


def _variants(plain: Signals, rng: np.random.Generator, strength: float) -> Signals:
    count = len(plain)
    shares = rng.dirichlet(np.ones(CHAINS), size=count).astype(np.float32)
    keep = rng.beta(1.0, 1.0, size=(count, 1, 1)).astype(np.float32)
    steps = (count * CHAINS, LONGEST)
    length = rng.integers(1, LONGEST + 1, size=(steps[0], 1))
    chosen = np.where(np.arange(LONGEST) < length, rng.integers(len(OPERATIONS), size=steps), -1)
    levels = (rng.uniform(0.1, strength, size=steps) * rng.choice([-1.0, 1.0], size=steps)).astype(np.float32)
    phases = rng.random(steps).astype(np.float32)
    # All at once, so that what is drawn is plain to see; from here on nothing is random.
    chains = np.repeat(plain, CHAINS, axis=0)
    for step in range(LONGEST):
        for number, operation in enumerate(OPERATIONS):
            rows = np.flatnonzero(chosen[:, step] == number)
            if len(rows):
                chains[rows] = operation(chains[rows], levels[rows, step], phases[rows, step])
    mixed = (chains.reshape(count, CHAINS, *plain.shape[1:]) * shares[:, :, None, None]).sum(axis=1)
    variants: Signals = keep * plain + (1 - keep) * mixed
    return variants


def _warp_time(signals: Signals, levels: Drawn, phases: Drawn) -> Signals:
    """Let time run faster in one half of the window and slower in the other; it never runs backwards."""
    share = np.linspace(0, 1, signals.shape[1], dtype=np.float32)
    moved = levels[:, None] * (_MOVED / _STRONGEST) * np.sin(2 * np.pi * share)
    return at_times(signals, (share + moved) * (signals.shape[1] - 1))


def _warp_size(signals: Signals, levels: Drawn, phases: Drawn) -> Signals:
    share = np.linspace(0, 1, signals.shape[1], dtype=np.float32)
    wave = np.sin(2 * np.pi * (share + phases[:, None]), dtype=np.float32)
    resized: Signals = signals * (1 + levels[:, None] * (_RESIZED / _STRONGEST) * wave)[:, :, None]
    return resized


def _shift(signals: Signals, levels: Drawn, phases: Drawn) -> Signals:
    steps = signals.shape[1]
    return at_times(signals, np.arange(steps, dtype=np.float32) + levels[:, None] * (_MOVED / _STRONGEST * steps))


def _smooth(signals: Signals, levels: Drawn, phases: Drawn) -> Signals:
    half = _SMOOTHED // 2
    padded = np.pad(signals, ((0, 0), (half, half), (0, 0)), mode="edge")
    average = np.mean([padded[:, i : i + signals.shape[1]] for i in range(_SMOOTHED)], axis=0).astype(np.float32)
    share = (np.abs(levels) / _STRONGEST)[:, None, None]
    smoothed: Signals = (1 - share) * signals + share * average
    return smoothed


def _hold(signals: Signals, levels: Drawn, phases: Drawn) -> Signals:
    """Repeat one value for a while, as when samples are lost on their way."""
    steps = signals.shape[1]
    length = np.abs(levels) * (_MOVED / _STRONGEST * steps)
    start = (phases * (steps - length))[:, None]
    times = np.arange(steps, dtype=np.float32)
    held = (times > start) & (times < start + length[:, None])
    return at_times(signals, np.where(held, np.floor(start), times))


def at_times(signals: Signals, times: NDArray[np.float32]) -> Signals:
    """Return signals (n, time, channels) read at other times (n, steps), in steps; the ends are held."""
    last = signals.shape[1] - 1
    clipped = np.clip(times, 0, last)
    before = np.minimum(clipped.astype(np.int64), max(last - 1, 0))
    after = np.minimum(before + 1, last)
    share = (clipped - before).astype(np.float32)[:, :, None]
    rows = np.arange(len(signals))[:, None]
    read: Signals = signals[rows, before] * (1 - share) + signals[rows, after] * share
    return read


OPERATIONS: tuple[Operation, ...] = (_warp_time, _warp_size, _shift, _smooth, _hold)
