"""Frost on the pane. CIFAR-10-C cuts it out of photographs; here the panes are drawn."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy  # loads its parts when they are first used, so that reading a manifest is quick

from btfl.pixels.corruptions.resampling import Floats, scale_of, streak
from btfl.randomness import generator

# Weight of the image and of the frost, both CIFAR-10-C's; and how thick the frost has grown, ours: of the same
# thickness throughout, frost with those weights leaves images nearer to the original at 4 and 5 than at 3.
FROST = ((1.0, 0.2, 0.8), (1.0, 0.3, 0.8), (0.9, 0.4, 0.8), (0.85, 0.4, 0.9), (0.75, 0.45, 1.0))
# The colour of each pane's ground and of its needles, as light and as lively as the five photographs: bright
# needles on teal, dark cracks in white (twice), bright needles on grey and on slate.
TONES = np.array(
    [
        [[0.18, 0.48, 0.58], [0.55, 0.76, 0.79]],
        [[0.94, 0.95, 0.99], [0.54, 0.55, 0.59]],
        [[0.94, 0.95, 0.99], [0.54, 0.55, 0.59]],
        [[0.34, 0.41, 0.46], [0.94, 0.99, 1.00]],
        [[0.14, 0.19, 0.26], [0.92, 0.94, 0.96]],
    ],
    np.float32,
)
SPACING = 28  # between nuclei, in pixels of a 32x32 image
NEEDLE = (7, 3.5)  # radius and sigma of its streak, likewise
SLANT = 0.7  # between a feather's spine and its needles, in radians


def frost(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Look through a random cut of a random frosted pane."""
    clear, frosted, thickness = FROST[severity - 1]
    n, height, width, channels = images.shape
    panes = _panes(height, width, scale_of(images))
    pane = rng.integers(len(panes), size=(n, 1, 1))
    top = rng.integers(panes.shape[1] - height, size=(n, 1, 1))
    left = rng.integers(panes.shape[2] - width, size=(n, 1, 1))
    rows, columns = np.arange(height)[:, None], np.arange(width)
    crystals = panes[pane, top + rows, left + columns][..., None]
    tones = TONES if channels == 3 else TONES.mean(axis=2, keepdims=True)
    ground, needles = tones[pane, 0], tones[pane, 1]
    out: Floats = clear * images + frosted * thickness * (ground + crystals * (needles - ground))
    return out


@lru_cache(maxsize=4)
def _panes(height: int, width: int, scale: float) -> Floats:
    """Draw the panes to cut images of one size from: always the same ones, as photographs would be."""
    tall, wide = max(128, 2 * height), max(128, 2 * width)
    panes = np.stack([_pane(tall, wide, scale, generator(0, "frost", number)) for number in range(len(TONES))])
    panes.flags.writeable = False
    return panes


def _pane(height: int, width: int, scale: float, rng: np.random.Generator) -> Floats:
    """Draw feathers of ice in [0, 1], each growing away from its nucleus."""
    count = max(3, round(height * width / (SPACING * scale) ** 2))
    nuclei = rng.random((count, 2)) * (height, width)
    rows, columns = np.mgrid[:height, :width]
    _, nearest = scipy.spatial.KDTree(nuclei).query(np.stack([rows, columns], axis=-1))
    growth = np.arctan2(rows - nuclei[nearest, 0], columns - nuclei[nearest, 1])
    # Six spines leave each nucleus; needles slant off a spine to the one side and to the other.
    side = np.sign(np.sin(6 * (growth + rng.uniform(0, 2 * np.pi, count)[nearest])))
    seeds = rng.random((1, height, width, 1), dtype=np.float32) ** 8  # few are bright: needles, not haze
    needles = streak(seeds, (growth + SLANT * side)[None], NEEDLE[0] * scale, NEEDLE[1] * scale)[0, ..., 0]
    cover = scipy.ndimage.gaussian_filter(rng.standard_normal((height, width)), 8 * scale, mode="wrap")
    ice = needles / needles.std() + 0.6 * cover / cover.std()
    low, high = np.percentile(ice, (1, 99))
    pane: Floats = np.clip((ice - low) / (high - low), 0, 1).astype(np.float32)
    return pane
