"""Digital: lost contrast, elastic warping, coarse pixels and JPEG."""

from __future__ import annotations

import io

import numpy as np
import scipy  # loads its parts when they are first used, so that reading a manifest is quick
from PIL import Image

from btfl.pixels.corruptions.resampling import Floats, bilinear, shorter_side

CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
# Shares of the shorter side: how far pixels wander, over what reach together, jitter of the affine map.
ELASTIC = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
PIXELATE = (0.95, 0.9, 0.85, 0.75, 0.65)  # of the pixels along each side
JPEG_QUALITY = (80, 65, 58, 50, 40)


def contrast(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Draw all pixels towards the mean of their channel."""
    mean = images.mean(axis=(1, 2), keepdims=True)
    out: Floats = (images - mean) * np.float32(CONTRAST[severity - 1]) + mean
    return out


def elastic_transform(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Move the image by a random affine map, then warp it locally.

    CIFAR-10-C trades one for the other: the higher the severity, the smaller the affine part and the rougher
    the local one. So the squared error to the original falls with severity while the warping grows.
    """
    n, height, width, _ = images.shape
    amplitude, reach, jitter = (shorter_side(images) * share for share in ELASTIC[severity - 1])
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    maps = _affine(n, height, width, jitter, rng)[..., None, None]
    moved = bilinear(images, *(maps[:, 0] * rows + maps[:, 1] * columns + maps[:, 2]).swapaxes(0, 1))
    if amplitude == 0:
        return moved
    wander = scipy.ndimage.gaussian_filter(
        rng.uniform(-1, 1, (2, n, height, width)).astype(np.float32), (0, 0, reach, reach), truncate=3
    )
    return bilinear(moved, rows + amplitude * wander[0], columns + amplitude * wander[1])


def _affine(n: int, height: int, width: int, jitter: float, rng: np.random.Generator) -> Floats:
    """Draw n affine maps (3, 2) that undo a jitter of three corners of a square in the middle."""
    arm = min(height, width) // 3
    y, x = height // 2, width // 2
    corners = np.array([[y + arm, x + arm], [y + arm, x - arm], [y - arm, x - arm]])
    jittered = corners + rng.uniform(-jitter, jitter, (n, 3, 2))
    homogeneous = np.concatenate([jittered, np.ones((n, 3, 1))], axis=2)
    return np.linalg.solve(homogeneous, np.broadcast_to(corners, (n, 3, 2))).astype(np.float32)


def pixelate(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Shrink by averaging boxes of pixels and blow up again by repeating, as Pillow's box filter does."""
    share = PIXELATE[severity - 1]
    vertical, horizontal = (_blocks(size, int(size * share)) for size in images.shape[1:3])
    out: Floats = np.einsum("yi,xj,nijc->nyxc", vertical, horizontal, images, optimize=True)
    return out


def _blocks(size: int, coarse: int) -> Floats:
    """Return the (size, size) matrix that averages a line into ``coarse`` blocks and spreads them out again."""
    edges = np.floor(np.arange(coarse + 1) * (size / coarse) + 0.5).astype(np.intp)
    pixels = np.arange(size)
    inside = (pixels >= edges[:-1, None]) & (pixels < edges[1:, None])
    shown = np.floor((pixels + 0.5) * (coarse / size)).astype(np.intp)
    blocks: Floats = (inside / inside.sum(axis=1, keepdims=True))[shown].astype(np.float32)
    return blocks


def jpeg_compression(images: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Store as JPEG and read back, image by image: Pillow knows no batches."""
    out = np.empty_like(images)
    for index, pixels in enumerate(np.rint(images * 255).astype(np.uint8)):
        grey = pixels.shape[2] == 1
        store = io.BytesIO()
        Image.fromarray(pixels[..., 0] if grey else pixels).save(store, "JPEG", quality=JPEG_QUALITY[severity - 1])
        out[index] = np.asarray(Image.open(store), np.float32).reshape(pixels.shape) / 255
    return out
