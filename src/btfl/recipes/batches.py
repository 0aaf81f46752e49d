"""A client's data in random order, as batches of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from btfl.data.source import LabelledImages
from btfl.pixels.images import crop_and_flip, to_tensor


def shuffled_batches(
    data: LabelledImages, batch: int, rng: np.random.Generator, augment: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Go through the data once in random order."""
    for rows in np.array_split(order := rng.permutation(len(data)), range(batch, len(order), batch)):
        images = data.images[rows]
        if augment:
            images = crop_and_flip(images, rng)
        yield to_tensor(images), torch.from_numpy(data.labels[rows])
