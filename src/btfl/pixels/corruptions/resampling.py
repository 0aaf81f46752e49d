"""What several corruptions share: how lengths grow with the image, and reading a batch off its own grid."""

from __future__ import annotations

import math

import numpy as np
import scipy  # loads its parts when they are first used, so that reading a manifest is quick
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]  # images in [0, 1], (n, height, width, channels), or planes (n, height, width)
Indices = NDArray[np.intp]
Positions = NDArray[np.float64]

REFERENCE_SIDE = 32  # the side for which CIFAR-10-C's constants were chosen


def shorter_side(images: Floats) -> int:
    """Return the lesser of height and width."""
    return min(int(images.shape[1]), int(images.shape[2]))


def scale_of(images: Floats) -> float:
    """Return the factor for lengths in pixels: the shorter side over 32, and never less than a half.

    The floor is for tiny images: at 8x8 a quarter of a pixel's blur would be no corruption at all.
    """
    return max(0.5, shorter_side(images) / REFERENCE_SIDE)


def streak(images: Floats, angles: ArrayLike, radius: float, sigma: float) -> Floats:
    """Smear along a direction, as ImageMagick's motion blur does: half a Gaussian, on whole-pixel steps.

    ``angles`` (radians) broadcasts against (n, height, width): one for each image, or one for each pixel.
    Past the edge the nearest pixel is repeated.
    """
    n, height, width, channels = images.shape
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    steps = steps[weights > 1e-4]  # the rest is far below one grey level
    weights = weights[: len(steps)] / weights.sum()
    sine, cosine = np.sin(angles), np.cos(angles)
    pixels = images.reshape(-1, channels)
    first = (np.arange(n) * height * width)[:, None, None]
    rows, columns = np.arange(height)[:, None], np.arange(width)
    out = np.zeros(images.shape, np.float32)
    for step, weight in zip(steps, weights, strict=True):
        y = np.clip(rows + np.ceil(step * sine - 0.5).astype(np.intp), 0, height - 1)
        x = np.clip(columns + np.ceil(step * cosine - 0.5).astype(np.intp), 0, width - 1)
        out += np.float32(weight) * pixels.take(first + y * width + x, axis=0)
    return out


def bilinear(images: Floats, ys: Floats, xs: Floats) -> Floats:
    """Read each image at fractional positions (n, height, width), mirrored at the edge."""
    n, height, width, channels = images.shape
    pixels = images.reshape(-1, channels)
    first = (np.arange(n) * height * width)[:, None, None]
    top, left = np.floor(ys), np.floor(xs)
    down, right = (ys - top)[..., None], (xs - left)[..., None]
    y0, x0 = top.astype(np.intp), left.astype(np.intp)
    upper, lower = (first + _mirror(y, height) * width for y in (y0, y0 + 1))
    x0, x1 = _mirror(x0, width), _mirror(x0 + 1, width)
    above = pixels.take(upper + x0, axis=0) * (1 - right) + pixels.take(upper + x1, axis=0) * right
    below = pixels.take(lower + x0, axis=0) * (1 - right) + pixels.take(lower + x1, axis=0) * right
    out: Floats = above * (1 - down) + below * down
    return out


def _mirror(index: Indices, size: int) -> Indices:
    period = 2 * size - 2
    wrapped = index % period
    return np.minimum(wrapped, period - wrapped)


def zoom_positions(cells: int, factor: float, size: int) -> Positions:
    """Return where ``size`` pixels fall on a line of ``cells`` whose middle is enlarged ``factor`` times.

    This is CIFAR-10-C's rounding of crop and growth, which is off centre by up to half a cell.
    """
    kept = math.ceil(cells / factor)
    grown = round(kept * factor)
    pixels = (np.arange(size, dtype=np.float64) + 0.5) * (cells / size) - 0.5
    return (cells - kept) // 2 + (pixels + (grown - cells) // 2) * ((kept - 1) / (grown - 1))


def linear_matrix(positions: Positions, cells: int) -> scipy.sparse.csr_array[np.float32]:
    """Return the matrix that reads a line of cells at fractional positions, the end cells repeated beyond."""
    inside = np.clip(positions, 0, cells - 1)
    low = np.minimum(inside.astype(np.intp), cells - 2)
    share = inside - low
    line = np.arange(len(positions))
    values = np.concatenate([1 - share, share]).astype(np.float32)
    where = np.concatenate([line, line]), np.concatenate([low, low + 1])
    return scipy.sparse.csr_array((values, where), shape=(len(positions), cells))


def reference_cells(size: int, images: Floats) -> int:
    """Return how many pixels a side of ``size`` would have if the shorter side of the images had 32."""
    return round(size * REFERENCE_SIDE / shorter_side(images))
