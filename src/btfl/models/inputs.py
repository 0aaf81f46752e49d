"""From stored samples of any kind to a network's input: one function for images, signals and vectors."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from btfl.pixels.images import scaled


def to_tensor(samples: NDArray[Any]) -> torch.Tensor:
    """Return samples as a network's input, floats.

    Parameters
    ----------
    samples : uint8 images (n, height, width, channels), float32 signals (n, time, channels) or vectors (n, d); they
        become (n, channels, height, width) in -2..2, (n, channels, time), and (n, d)
    """
    return arranged(torch.from_numpy(samples))


def arranged(samples: torch.Tensor) -> torch.Tensor:
    """Return the same from a tensor."""
    if samples.ndim == 4:
        return scaled(samples)
    return samples.permute(0, 2, 1) if samples.ndim == 3 else samples
