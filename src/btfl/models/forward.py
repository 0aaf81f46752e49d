"""Many images through a network in evaluation mode, a few at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.models.network import Network
from btfl.pixels.images import to_tensor
from btfl.pixels.types import Images


@torch.no_grad()
def extract(network: Network, images: Images, batch: int = 256) -> NDArray[np.float32]:
    """Return the features (n, feature_size) of images (n, height, width, channels), in evaluation mode."""
    network.eval()
    parts = [network.features(to_tensor(images[i : i + batch])).numpy() for i in range(0, len(images), batch)]
    return np.concatenate(parts) if parts else np.empty((0, network.feature_size), np.float32)


@torch.no_grad()
def logits(network: Network, images: Images, batch: int = 256) -> NDArray[np.float32]:
    """Return the logits (n, classes) of images (n, height, width, channels), in evaluation mode."""
    network.eval()
    return np.concatenate([network(to_tensor(images[i : i + batch])).numpy() for i in range(0, len(images), batch)])
