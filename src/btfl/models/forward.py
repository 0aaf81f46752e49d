"""Many samples through a network in evaluation mode, a few at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.models.inputs import to_tensor
from btfl.models.network import Network


@torch.no_grad()
def extract(network: Network, samples: NDArray[Any], batch: int = 256) -> NDArray[np.float32]:
    """Return the features (n, feature_size) of images, signals or vectors, in evaluation mode."""
    network.eval()
    parts = [network.features(to_tensor(samples[i : i + batch])).numpy() for i in range(0, len(samples), batch)]
    return np.concatenate(parts) if parts else np.empty((0, network.feature_size), np.float32)


@torch.no_grad()
def logits(network: Network, samples: NDArray[Any], batch: int = 256) -> NDArray[np.float32]:
    """Return the logits (n, classes) of images, signals or vectors, in evaluation mode."""
    network.eval()
    return np.concatenate([network(to_tensor(samples[i : i + batch])).numpy() for i in range(0, len(samples), batch)])
