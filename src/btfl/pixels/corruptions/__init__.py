"""The 15 corruptions of CIFAR-10-C (Hendrycks and Dietterich, 2019), with its constants for 32x32 images.

Written from scratch on numpy, scipy and Pillow, for whole batches. A length in pixels scales with the shorter side over
32, so that a larger image looks as corrupted as a small one. Two things differ from the published files: frost
is drawn rather than photographed, and results are rounded to the nearest grey level rather than down.

Severity is CIFAR-10-C's, oddities included. The mean squared error to the original grows with it, except for
motion blur from 3 to 4 (the same kernel), for glass blur from 2 to 3 and from 4 to 5 (the stronger blur smooths
the jumps away) and for elastic transforms (see there).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from btfl.errors import InputError, UnknownNameError
from btfl.knobs import Knob
from btfl.pixels.corruptions import blur, digital, noise, weather
from btfl.pixels.corruptions.resampling import Floats
from btfl.pixels.types import Images

__all__ = ["CORRUPTIONS", "SEVERITIES", "corrupt"]

_FUNCTIONS: dict[str, Callable[[Floats, int, np.random.Generator], Floats]] = {
    function.__name__: function
    for function in (
        noise.gaussian_noise,
        noise.shot_noise,
        noise.impulse_noise,
        blur.defocus_blur,
        blur.glass_blur,
        blur.motion_blur,
        blur.zoom_blur,
        weather.snow,
        weather.frost,
        weather.fog,
        weather.brightness,
        digital.contrast,
        digital.elastic_transform,
        digital.pixelate,
        digital.jpeg_compression,
    )
}

CORRUPTIONS: tuple[str, ...] = tuple(_FUNCTIONS)
SEVERITIES = (1, 2, 3, 4, 5)
_SEVERITY = Knob("severity", int, 5, "Strength of a corruption.", False, least=SEVERITIES[0], most=SEVERITIES[-1])

_LEAST_SIDE = 8
_PIXELS_AT_ONCE = 1 << 18  # 256 images of 32x32: a few megabytes of floats, whatever the size of the batch


def corrupt(images: Images, name: str, severity: int, rng: np.random.Generator) -> Images:
    """Return corrupted copies of a batch of images.

    Parameters
    ----------
    images : uint8 (n, height, width, 1 or 3), at least 8x8
    name : one of ``CORRUPTIONS``
    severity : 1 (slight) to 5 (strong)
    rng : source of all randomness: the same state and the same batch give the same bytes

    Example
    -------
    >>> foggy = corrupt(images, "fog", severity=3, rng=np.random.default_rng(0))
    """
    if name not in _FUNCTIONS:
        raise UnknownNameError("corruption", name, CORRUPTIONS)
    _SEVERITY.check(severity)
    _check_images(images)
    _, height, width, _ = images.shape
    out = np.empty_like(images)
    at_once = max(1, _PIXELS_AT_ONCE // (height * width))
    for start in range(0, len(images), at_once):
        part = slice(start, start + at_once)
        floats = np.divide(images[part], 255, dtype=np.float32)
        out[part] = np.rint(np.clip(_FUNCTIONS[name](floats, severity, rng), 0, 1) * 255)
    return out


def _check_images(images: Images) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(
            f"images to corrupt must be uint8 of shape (n, height, width, 1 or 3), not "
            f"{images.dtype} of shape {images.shape}"
        )
    if min(images.shape[1:3]) < _LEAST_SIDE:
        raise InputError(
            f"images to corrupt must be at least {_LEAST_SIDE}x{_LEAST_SIDE} pixels, not "
            f"{images.shape[1]}x{images.shape[2]}"
        )
