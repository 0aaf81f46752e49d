"""From stored images to what a network eats: uint8 in, float tensors out, in the memory layout that is fastest here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.data.source import Images, LabelledImages
from btfl.models import Network

# One scale for every dataset, so that nothing about the data has to be known or shared beforehand: 0..255 becomes
# -2..2, which is CIFAR-10's own mean and deviation to within 2 %.
_SCALE, _SHIFT = 4.0 / 255.0, -2.0


def to_tensor(images: Images) -> torch.Tensor:
    """Give (n, channels, height, width) floats; the memory stays in the images' own order, which is channels-last."""
    return scaled(torch.from_numpy(images))


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Give what the network eats from a tensor of (n, height, width, channels) bytes."""
    return images.permute(0, 3, 1, 2).to(torch.float32).mul_(_SCALE).add_(_SHIFT)


def shuffled_batches(
    data: LabelledImages, batch: int, rng: np.random.Generator, augment: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Go through the data once in random order."""
    for rows in np.array_split(order := rng.permutation(len(data)), range(batch, len(order), batch)):
        images = data.images[rows]
        if augment:
            images = crop_and_flip(images, rng)
        yield to_tensor(images), torch.from_numpy(data.labels[rows])


def crop_and_flip(images: Images, rng: np.random.Generator) -> Images:
    """Shift each image by up to an eighth of its side, filling with black, and mirror half of them."""
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


@torch.no_grad()
def extract(network: Network, images: Images, batch: int = 256) -> NDArray[np.float32]:
    """Give the features of every image, as the network in evaluation mode sees them."""
    network.eval()
    parts = [network.features(to_tensor(images[i : i + batch])).numpy() for i in range(0, len(images), batch)]
    return np.concatenate(parts) if parts else np.empty((0, network.feature_size), np.float32)


@torch.no_grad()
def logits(network: Network, images: Images, batch: int = 256) -> NDArray[np.float32]:
    """Give the logits of every image."""
    network.eval()
    return np.concatenate([network(to_tensor(images[i : i + batch])).numpy() for i in range(0, len(images), batch)])
