"""TTT's auxiliary task (Gidaris et al., 2018): by how many quarter turns has an image been rotated?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from btfl.errors import InputError
from btfl.models.factory import torch_draws
from btfl.models.weights import load_arrays

TURNS = 4


def check_square(sample_shape: tuple[int, ...]) -> None:
    """Refuse samples that are no images, and images whose shape a quarter turn would change."""
    if len(sample_shape) != 3:
        raise InputError("TTT turns images by 90 degrees, and these samples are no images: choose other methods")
    height, width, _ = sample_shape
    if height != width:
        raise InputError(
            f"TTT turns images by 90 degrees, so they must be square, not {height}x{width}; crop or resize them first"
        )


def new_rotation_head(feature_size: int, seed: int) -> nn.Linear:
    """Return a head that tells the four turns apart, with initial weights that follow from the seed."""
    with torch_draws(seed, "init", "rotation head"):
        return nn.Linear(feature_size, TURNS)


def rotation_head(weights: Mapping[str, ArrayLike]) -> nn.Linear:
    """Return a rotation head with these weights."""
    head = new_rotation_head(np.shape(weights["weight"])[1], 0)
    load_arrays(head, weights)
    return head


def rotated(images: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn each image of (n, channels, side, side) by its own number of quarter turns."""
    result = torch.empty_like(images)
    for turn in range(TURNS):
        mine = turns == turn
        result[mine] = torch.rot90(images[mine], turn, (2, 3))
    return result


def rotated_every_way(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (4n) images, all of them turned each way, and by how many quarter turns."""
    turns = torch.arange(TURNS).repeat_interleave(len(images))
    return rotated(images.repeat(TURNS, 1, 1, 1), turns), turns
