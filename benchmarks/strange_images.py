"""Shifts that no test stream has: what settings may be chosen on besides clean validation images.

None of them is among the benchmark's 15 corruptions, and none needs another dataset.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from btfl.pixels.types import Images

Floats = NDArray[np.float64]
Shift = Callable[[Floats, np.random.Generator], Floats]
"""(images of 0..1, chance) -> images; (n, height, width, channels)."""


def _grey(images: Floats) -> Floats:
    return np.broadcast_to(images.mean(-1, keepdims=True), images.shape)


def _outlined(images: Floats) -> Floats:
    """Draw dark edges on white, as a pencil would."""
    grey = images.mean(-1)
    edges = np.hypot(ndimage.sobel(grey, 1), ndimage.sobel(grey, 2))
    strongest = np.maximum(np.quantile(edges, 0.97, axis=(1, 2), keepdims=True), 1e-3)
    return np.broadcast_to(1 - (edges / strongest)[..., None], images.shape)


def _turned(images: Floats) -> Floats:
    return np.asarray(ndimage.rotate(images, 25, axes=(1, 2), reshape=False, order=1, mode="reflect"))


SHIFTS: dict[str, Shift] = {
    "speckle": lambda images, rng: images * (1 + rng.normal(0, 0.35, images.shape)),
    "gaussian blur": lambda images, _: ndimage.gaussian_filter(images, (0, 1.2, 1.2, 0)),
    "grey": lambda images, _: _grey(images),
    "saturated": lambda images, _: _grey(images) + 3 * (images - _grey(images)),
    "negative": lambda images, _: 1 - images,
    "solarised": lambda images, _: np.where(images > 0.5, 1 - images, images),
    "four levels": lambda images, _: np.floor(images * 255 / 64) * 64 / 255,
    "turned": lambda images, _: _turned(images),
    "outlined": lambda images, _: _outlined(images),
}


def shifted(images: Images, name: str, rng: np.random.Generator) -> Images:
    """Return shifted copies of uint8 images."""
    result = SHIFTS[name](images.astype(np.float64) / 255, rng)
    return np.clip(np.rint(result * 255), 0, 255).astype(np.uint8)
