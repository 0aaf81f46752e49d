"""Corruptions of signals: what each does to a signal, that it grows with severity, and that it repeats to the byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.errors import InputError, UnknownNameError
from btfl.signals.corruptions import SEVERITIES, SIGNAL_CORRUPTIONS, corrupt_signals, suited
from btfl.signals.types import Signals

STEPS, CHANNELS = 60, 6


def windows(count: int = 40, channels: int = CHANNELS, steps: int = STEPS) -> Signals:
    rng = np.random.default_rng(0)
    times = np.linspace(0, 6 * np.pi, steps)[None, :, None]
    waves = np.sin(times * rng.uniform(0.5, 1.5, (count, 1, 1)) + rng.uniform(0, 6, (count, 1, channels)))
    loud = rng.uniform(0.3, 2.0, (count, 1, 1))
    return np.asarray(loud * waves + 1 + np.arange(channels), dtype=np.float32)


def corrupted(signals: Signals, name: str, severity: int = 3, seed: int = 1) -> Signals:
    mean, deviation = signals.mean((0, 1), dtype=np.float64), signals.std((0, 1), dtype=np.float64)
    return corrupt_signals(signals, name, severity, np.random.default_rng(seed), mean, deviation)


@pytest.mark.parametrize("name", SIGNAL_CORRUPTIONS)
def test_the_difference_grows_with_severity(name: str) -> None:
    plain = windows()
    errors = [float(np.square(corrupted(plain, name, severity) - plain).mean()) for severity in SEVERITIES]
    assert errors[0] > 0
    growing = np.diff(errors) >= 0 if name == "dead_channel" else np.diff(errors) > 0
    assert growing.all()
    assert errors[4] > 2 * errors[0]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SIGNAL_CORRUPTIONS), st.integers(1, 5), st.integers(1, 30), st.integers(1, 7), st.integers(0, 3))
def test_any_signal_keeps_its_shape_and_stays_finite(
    name: str, severity: int, steps: int, channels: int, count: int
) -> None:
    if name not in suited(channels):
        return
    plain = windows(count + 1, channels, steps)
    changed = corrupt_signals(
        plain[:count], name, severity, np.random.default_rng(0), np.zeros(channels), np.ones(channels)
    )
    assert changed.shape == (count, steps, channels)
    assert changed.dtype == np.float32
    assert np.isfinite(changed).all()


@pytest.mark.parametrize("name", SIGNAL_CORRUPTIONS)
def test_the_same_generator_gives_the_same_bytes_and_another_does_not(name: str) -> None:
    plain = windows(5)
    assert corrupted(plain, name).tobytes() == corrupted(plain, name).tobytes()
    same = corrupted(plain, name, seed=2).tobytes() == corrupted(plain, name).tobytes()
    assert same == (name == "clipping")  # nothing is drawn for it


def test_a_dead_channel_reads_zero_and_the_others_are_as_they_were() -> None:
    plain = windows()
    for severity, dead in zip(SEVERITIES, (1, 1, 2, 2, 3), strict=True):
        changed = corrupted(plain, "dead_channel", severity)
        silent = (changed == 0).all(axis=1)
        assert (silent.sum(axis=1) == dead).all()
        kept = ~silent[:, None].repeat(STEPS, axis=1)
        np.testing.assert_array_equal(changed[kept], plain[kept])


def test_a_turned_device_keeps_the_length_of_every_vector() -> None:
    plain = windows()
    changed = corrupted(plain, "turned")
    for sensor in range(0, CHANNELS, 3):
        one, other = plain[..., sensor : sensor + 3], changed[..., sensor : sensor + 3]
        np.testing.assert_allclose(np.linalg.norm(one, axis=2), np.linalg.norm(other, axis=2), rtol=1e-5)
    largest = np.linalg.norm(changed[..., :3] - plain[..., :3], axis=2) / np.linalg.norm(plain[..., :3], axis=2)
    assert largest.max() <= 2 * np.sin(np.deg2rad(40) / 2) + 1e-5  # no vector is turned by more than the angle


def test_clipping_and_offset_and_gain_do_what_they_say() -> None:
    plain = windows()
    mean, deviation = plain.mean((0, 1), dtype=np.float64), plain.std((0, 1), dtype=np.float64)
    assert (np.abs(corrupted(plain, "clipping", 5) - mean) <= 0.4 * deviation + 1e-5).all()
    moved = (corrupted(plain, "offset", 5) - plain) / deviation
    np.testing.assert_allclose(np.abs(moved), 1.5, rtol=1e-4)
    factor = corrupted(plain, "gain", 1)[:, 0] / plain[:, 0]
    assert ((np.abs(factor - 1.1) < 1e-4) | (np.abs(factor - 1 / 1.1) < 1e-4)).all()


def test_too_fast_a_rate_shows_a_shorter_time_slower() -> None:
    ramp = np.arange(101, dtype=np.float32)[None, :, None]
    slower = corrupted(ramp, "sampling_rate", 5)[0, :, 0]
    np.testing.assert_allclose(np.diff(slower), 0.5, atol=1e-4)
    assert 0 <= slower[0] <= slower[-1] <= 100


def test_what_does_not_fit_is_refused() -> None:
    plain = windows(2, channels=4)
    assert "turned" not in suited(4)
    with pytest.raises(InputError, match="multiple of 3, x, y and z of each sensor, not 4"):
        corrupted(plain, "turned")
    with pytest.raises(UnknownNameError, match="dead_channel"):
        corrupted(plain, "dead")
    with pytest.raises(InputError, match="severity must be a whole number from 1 to 5"):
        corrupted(plain, "noise", 6)
    with pytest.raises(InputError, match="a mean and a deviation for each channel"):
        corrupt_signals(plain, "noise", 1, np.random.default_rng(0), np.zeros(3), np.ones(3))
