"""From stored images to a network's input: uint8 to float tensors, in the memory layout that is fastest here."""

from __future__ import annotations

import numpy as np
import torch

from btfl.pixels.types import Images

# One scale for every dataset, so that nothing about the data has to be known or shared beforehand: 0..255 becomes
# -2..2, which is CIFAR-10's own mean and deviation to within 2 %.
_SCALE, _SHIFT = 4.0 / 255.0, -2.0


def to_tensor(images: Images) -> torch.Tensor:
    """Return uint8 images (n, height, width, channels) as floats (n, channels, height, width) in -2..2.

    The memory stays in the images' own order, which is channels-last.
    """
    return scaled(torch.from_numpy(images))


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Return the same from a uint8 tensor (n, height, width, channels)."""
    return images.permute(0, 3, 1, 2).to(torch.float32).mul_(_SCALE).add_(_SHIFT)


def crop_and_flip(images: Images, rng: np.random.Generator) -> Images:
    """Return images (n, height, width, channels) shifted by up to an eighth of their side, half of them mirrored.

    What comes in at the borders is black.
    """
    count, height, width, channels = images.shape
    pad_y, pad_x = height // 8, width // 8
    padded = np.zeros((count, height + 2 * pad_y, width + 2 * pad_x, channels), images.dtype)
    padded[:, pad_y : pad_y + height, pad_x : pad_x + width] = images
    tops, lefts = rng.integers(2 * pad_y + 1, size=count), rng.integers(2 * pad_x + 1, size=count)
    mirrored = rng.random(count) < 0.5
    moved = np.empty_like(images)
    for i, (top, left) in enumerate(zip(tops.tolist(), lefts.tolist(), strict=True)):  # four times as fast as indexing
        moved[i] = padded[i, top : top + height, left : left + width]
    moved[mirrored] = moved[mirrored, :, ::-1]
    return moved
