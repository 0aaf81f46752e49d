"""Augmentation moves and mirrors images, and does nothing else to them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from btfl.pixels.images import crop_and_flip


@given(st.integers(0, 2**32), st.sampled_from([(8, 8), (32, 32), (16, 24), (5, 7)]))
def test_each_image_is_a_window_of_itself_in_black_perhaps_mirrored(seed: int, shape: tuple[int, int]) -> None:
    height, width = shape
    images = np.random.default_rng(seed).integers(1, 256, (4, height, width, 3), dtype=np.uint8)
    before = images.copy()
    moved = crop_and_flip(images, np.random.default_rng(seed))
    np.testing.assert_array_equal(images, before)
    for image, result in zip(images, moved, strict=True):
        assert any(np.array_equal(window, result) for window in windows(image))


def windows(image: np.ndarray) -> list[np.ndarray]:
    height, width, _ = image.shape
    y, x = height // 8, width // 8
    padded = np.pad(image, ((y, y), (x, x), (0, 0)))
    every = [padded[i : i + height, j : j + width] for i in range(2 * y + 1) for j in range(2 * x + 1)]
    return every + [window[:, ::-1] for window in every]


def test_all_places_and_both_sides_occur() -> None:
    image = np.arange(1, 65, dtype=np.uint8).reshape(1, 8, 8, 1)
    moved = crop_and_flip(np.repeat(image, 400, axis=0), np.random.default_rng(0))
    assert len(np.unique(moved.reshape(400, -1), axis=0)) == 3 * 3 * 2
