"""Blur: out of focus, through rough glass, of a moving camera, of a camera moving forward."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy  # loads its parts when they are first used, so that reading a manifest is quick

from btfl.pixels.corruptions.resampling import Floats, linear_matrix, reference_cells, scale_of, streak, zoom_positions

DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, softening of its rim
GLASS = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))  # blur, farthest jump, times
MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, sigma
ZOOM_END = (1.06, 1.11, 1.16, 1.21, 1.26)  # of the factors, in steps of 0.01


def defocus_blur(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Blur with a disk. Images below 32 pixels get the disk of 32: it is already as small as 3x3."""
    kernel = _disk(*DEFOCUS[severity - 1], scale_of(images))
    reach = len(kernel) // 2
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect")
    out = np.zeros_like(images)
    for y, x in np.argwhere(kernel > 1e-6):
        out += kernel[y, x] * padded[:, y : y + height, x : x + width]
    return out


def _disk(radius: float, softening: float, scale: float) -> Floats:
    """Draw CIFAR-10-C's disk, of few pixels; on larger images a smooth disk of as wide a spread."""
    axis = np.arange(-2, 3)
    disk = (axis[:, None] ** 2 + axis**2 <= radius**2).astype(np.float64)
    rim = np.exp(-((np.arange(-1, 2) / softening) ** 2) / 2)
    for direction in (0, 1):
        disk = scipy.ndimage.convolve1d(disk, rim / rim.sum(), axis=direction, mode="constant")
    disk /= disk.sum()
    if scale > 1:
        wide = 2 * scale * np.sqrt((disk * axis**2).sum())  # a disk spreads by half its radius
        axis = np.arange(-int(wide + 1), int(wide + 2))
        disk = np.clip(wide + 0.5 - np.hypot(axis[:, None], axis), 0, 1)
    kernel: Floats = (disk / disk.sum()).astype(np.float32)
    return kernel


def glass_blur(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Let each pixel show one up to a jump above and left of it, between two slight blurs.

    CIFAR-10-C means to swap pixels, but its swap of two numpy views only ever copies, and its jumps are drawn
    from -1 and 0: what its files hold is this. Images below 32 pixels jump a whole pixel too: there is no smaller jump.
    """
    sigma, jump, times = GLASS[severity - 1]
    scale = max(1.0, scale_of(images))
    sigma, reach = _widened(sigma, scale), round(jump * scale)
    n, height, width, _ = images.shape
    which = np.arange(n)[:, None, None]
    rows = np.arange(reach + 1, height - reach + 1)[:, None]
    columns = np.arange(reach + 1, width - reach + 1)
    window = (n, rows.size, columns.size)
    out = _gaussian(images, sigma)
    for _ in range(times):
        dy, dx = rng.integers(-reach, reach, (2, *window))
        out[:, rows, columns] = out[which, rows + dy, columns + dx]
    return _gaussian(out, sigma)


def _widened(sigma: float, scale: float) -> float:
    """Scale a Gaussian by what it really spreads: sampled on whole pixels, a narrow one hardly does."""
    side = math.exp(-0.5 / sigma**2)
    return max(sigma, scale * math.sqrt(2 * side / (1 + 2 * side)))


def _gaussian(images: Floats, sigma: float) -> Floats:
    out: Floats = scipy.ndimage.gaussian_filter(images, (0, sigma, sigma, 0), mode="nearest")
    return out


def motion_blur(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Smear each image along its own direction, within 45 degrees of the horizontal."""
    radius, sigma = MOTION[severity - 1]
    scale = scale_of(images)
    angles = rng.uniform(-np.pi / 4, np.pi / 4, (len(images), 1, 1))
    return streak(images, angles, radius * scale, sigma * scale)


def zoom_blur(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Average the image with ever larger views of its middle, as far off centre as they are at 32 pixels."""
    n, height, width, channels = images.shape
    cells = reference_cells(height, images), reference_cells(width, images)
    pixels = images.transpose(1, 2, 0, 3).reshape(height * width, n * channels)
    blurred = _zooms((height, width), cells, ZOOM_END[severity - 1]) @ pixels
    out: Floats = blurred.reshape(height, width, n, channels).transpose(2, 0, 1, 3)
    return out


@lru_cache(maxsize=2)  # tens of megabytes each at 224x224
def _zooms(sizes: tuple[int, int], cells: tuple[int, int], end: float) -> scipy.sparse.csr_array[np.float32]:
    # The image itself comes once more. How arange rounds decides whether the end is in, so it has to be arange.
    factors = [1.0, *np.arange(1, end, 0.01)]
    total = scipy.sparse.csr_array((sizes[0] * sizes[1],) * 2, dtype=np.float32)
    for factor in factors:
        down, across = (
            linear_matrix((zoom_positions(few, factor, size) + 0.5) * (size / few) - 0.5, size)
            for size, few in zip(sizes, cells, strict=True)
        )
        total = total + scipy.sparse.kron(down, across, format="csr")
    return scipy.sparse.csr_array(total / np.float32(len(factors)))
