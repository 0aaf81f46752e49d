"""Noise: Gaussian, shot (Poisson) and impulse (salt and pepper), drawn for each channel by itself.

Noise acts on single pixels, so it has no length to scale with the image.
"""

from __future__ import annotations

import numpy as np

from btfl.pixels.corruptions.resampling import Floats

GAUSSIAN_STD = (0.04, 0.06, 0.08, 0.09, 0.10)
SHOT_PHOTONS = (500, 250, 100, 75, 50)  # that a white pixel catches on average
IMPULSE_SHARE = (0.01, 0.02, 0.03, 0.05, 0.07)  # of the values that turn black or white


def gaussian_noise(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Add noise of the same strength everywhere, as a sensor in the dark does."""
    noise = rng.standard_normal(images.shape, dtype=np.float32)
    return images + np.float32(GAUSSIAN_STD[severity - 1]) * noise


def shot_noise(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Count photons: the noise grows with the root of the light."""
    photons = SHOT_PHOTONS[severity - 1]
    return rng.poisson(images * photons).astype(np.float32) / np.float32(photons)


def impulse_noise(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Turn a share of the values fully on or fully off, half and half."""
    share = IMPULSE_SHARE[severity - 1]
    chance = rng.random(images.shape, dtype=np.float32)
    return np.where(chance < share, (chance < share / 2).astype(np.float32), images)
