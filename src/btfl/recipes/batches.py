"""A client's data in random order, as batches of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from btfl.data.source import Samples
from btfl.models.inputs import to_tensor
from btfl.pixels.images import crop_and_flip


def shuffled_batches(
    data: Samples, batch: int, rng: np.random.Generator, augment: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Go through the data once in random order; only images are augmented."""
    for rows in np.array_split(order := rng.permutation(len(data)), range(batch, len(order), batch)):
        values = data.values[rows]
        if augment and data.kind == "images":
            values = crop_and_flip(values, rng)
        yield to_tensor(values), torch.from_numpy(data.labels[rows])
