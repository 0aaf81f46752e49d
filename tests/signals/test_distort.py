"""Mild variants of signals: of the same shape and near the original, and the same for the same generator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.signals.distort import OPERATIONS, at_times, distorted
from btfl.signals.types import Signals


def waves(count: int, steps: int = 64, channels: int = 3) -> Signals:
    rng = np.random.default_rng(0)
    times = np.linspace(0, 4 * np.pi, steps)[None, :, None]
    return np.asarray(np.sin(times + rng.uniform(0, 6, (count, 1, channels))) + 2, dtype=np.float32)


def test_variants_are_near_and_grow_apart_with_strength() -> None:
    plain = waves(200)
    apart = [float(((distorted(plain, np.random.default_rng(1), s) - plain) ** 2).mean()) for s in (0.5, 1.0, 5.0)]
    assert 0 < apart[0] < apart[1] < apart[2] < 0.25  # a wave's own variance is 0.5


def test_the_same_generator_gives_the_same_bytes() -> None:
    plain = waves(7)
    one, two = (distorted(plain, np.random.default_rng(3), 5.0) for _ in range(2))
    assert one.dtype == np.float32
    assert one.tobytes() == two.tobytes()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 3))
def test_any_shape_stays_and_stays_finite(steps: int, channels: int, count: int) -> None:
    plain = waves(count, steps, channels)
    variant = distorted(plain, np.random.default_rng(0), 5.0)
    assert variant.shape == plain.shape
    assert np.isfinite(variant).all()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_constant_stays_constant_unless_it_is_resized(operation: object) -> None:
    flat = np.full((2, 50, 2), 3, np.float32)
    levels, phases = np.array([5, -5], np.float32), np.array([0.2, 0.7], np.float32)
    changed = operation(flat, levels, phases)  # type: ignore[operator]
    assert np.abs(changed - flat).max() < (1 if operation.__name__ == "_warp_size" else 1e-5)  # type: ignore[attr-defined]


def test_reading_at_the_same_times_changes_nothing() -> None:
    plain = waves(3)
    times = np.broadcast_to(np.arange(64, dtype=np.float32), (3, 64))
    np.testing.assert_array_equal(at_times(plain, times), plain)
    half = at_times(plain, times[:, :-1] + np.float32(0.5))
    np.testing.assert_allclose(half, (plain[:, 1:] + plain[:, :-1]) / 2, rtol=1e-6)
