"""Weather: snow, frost on the pane, fog, and brighter light."""

from __future__ import annotations

import numpy as np

from btfl.pixels.corruptions.frost import frost
from btfl.pixels.corruptions.resampling import Floats, linear_matrix, reference_cells, scale_of, streak, zoom_positions

__all__ = ["brightness", "fog", "frost", "snow"]

# Flakes: mean, spread, size, threshold. Their streaks: radius, sigma. Share of the image not bleached.
SNOW = (
    (0.10, 0.2, 1.00, 0.60, 8, 3, 0.95),
    (0.10, 0.2, 1.00, 0.50, 10, 4, 0.90),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.90),
    (0.25, 0.3, 2.25, 0.60, 12, 6, 0.85),
    (0.30, 0.3, 1.25, 0.65, 14, 12, 0.80),
)
FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # thickness, smoothness
BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)  # added to the value of HSV
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def snow(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Bleach the image and let falling flakes streak across it, each streak met by its mirror image."""
    mean, spread, size, threshold, radius, sigma, kept = SNOW[severity - 1]
    n, height, width, channels = images.shape
    scale = scale_of(images)
    cells = reference_cells(height, images), reference_cells(width, images)
    down, across = (
        linear_matrix(zoom_positions(few, size, side), few).toarray()
        for few, side in zip(cells, (height, width), strict=True)
    )
    flakes = mean + spread * rng.standard_normal((n, *cells), dtype=np.float32)
    flakes = down @ flakes @ across.T
    flakes = np.where(flakes < threshold, 0, np.clip(flakes, 0, 1))
    angles = rng.uniform(-0.75 * np.pi, -0.25 * np.pi, (n, 1, 1))
    flakes = streak(flakes[..., None], angles, radius * scale, sigma * scale)
    grey = images @ LUMA[:, None] if channels == 3 else images
    bleached = np.maximum(images, grey * 1.5 + 0.5)
    out: Floats = kept * images + (1 - kept) * bleached + flakes + flakes[:, ::-1, ::-1]
    return out


def fog(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Draw a drifting cloud over the image, then darken both so that the lightest pixel stays as light."""
    thickness, smoothness = FOG[severity - 1]
    n, height, width, _ = images.shape
    lightest = images.max(axis=(1, 2, 3), keepdims=True)
    cloud = _plasma(n, max(height, width), smoothness, rng)[:, :height, :width, None]
    out: Floats = (images + thickness * cloud) * (lightest / (lightest + thickness))
    return out


def _plasma(n: int, least: int, smoothness: float, rng: np.random.Generator) -> Floats:
    """Draw n fractal clouds in [0, 1], on a torus, by midpoint displacement (diamond-square)."""
    side = 1 << (least - 1).bit_length()
    cloud = np.zeros((n, side, side), np.float32)
    step, jitter = side, 1.0

    def displaced(neighbours: Floats) -> Floats:
        return neighbours / 4 + np.float32(jitter) * rng.uniform(-1, 1, neighbours.shape).astype(np.float32)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, half::step] = displaced(pairs + np.roll(pairs, -1, axis=2))
        centres = cloud[:, half::step, half::step]
        across = corners + np.roll(corners, -1, axis=2) + centres + np.roll(centres, 1, axis=1)
        cloud[:, ::step, half::step] = displaced(across)
        down = corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=2)
        cloud[:, half::step, ::step] = displaced(down)
        step = half
        jitter /= smoothness**2  # squared as in CIFAR-10-C, which applies its jitter twice
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= cloud.max(axis=(1, 2), keepdims=True)
    return cloud


def brightness(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Raise the value of HSV, leaving hue and saturation: all channels of a pixel grow by the same factor."""
    value = images.max(axis=3, keepdims=True)
    raised = np.minimum(value + np.float32(BRIGHTNESS[severity - 1]), 1)
    black = value == 0  # has no hue to keep and turns grey
    out: Floats = np.where(black, raised, images * (raised / np.where(black, np.float32(1), value)))
    return out
