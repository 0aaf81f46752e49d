"""What the methods that tune a network at test time share: a snapshot of its weights, and steps without memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.core.softmax import log_softmax
from btfl.models.inputs import to_tensor
from btfl.models.network import Network
from btfl.randomness import generator


class Snapshot:
    """The weights as they are now; ``restore`` copies them back in place, to the bit."""

    def __init__(self, *modules: torch.nn.Module) -> None:
        self._live = [tensor for module in modules for tensor in module.state_dict().values()]
        self._kept = [tensor.clone() for tensor in self._live]

    @torch.no_grad()
    def restore(self) -> None:
        """Copy the weights back."""
        for live, kept in zip(self._live, self._kept, strict=True):
            live.copy_(kept)


def plain_sgd(parameters: Iterable[torch.nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """Return stochastic gradient descent without momentum: it remembers nothing, so there is nothing to reset."""
    return torch.optim.SGD(parameters, lr=learning_rate, fused=True)


@torch.no_grad()
def predicted(network: Network, image: NDArray[Any]) -> NDArray[np.float64]:
    """Return the network's probabilities for a single image of (height, width, channels)."""
    logits = network(to_tensor(image[None]))[0].numpy().astype(np.float64)
    return np.exp(log_softmax(logits))


def draws_for(image: NDArray[Any], seed: int, method: str) -> np.random.Generator:
    """Return the generator for one image's augmentations.

    It follows from the pixels, so neither the order of the stream nor how it is cut into batches can matter.
    """
    return generator(seed, method, hashlib.sha256(np.ascontiguousarray(image).data).hexdigest())
