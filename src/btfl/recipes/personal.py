"""Private heads: arrays of a client's own that live through the rounds and are never uploaded."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.core.client import Weights
from btfl.models import load_arrays, to_arrays


def private_head(name: str, like: nn.Linear, private: Weights, *, from_zero: bool = False) -> nn.Linear:
    """Return the client's head of that name; the first time a copy of ``like``, or zeros of its shape."""
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws initial weights that are overwritten at once
        head = nn.Linear(like.in_features, like.out_features, like.bias is not None)
    prefix = f"{name}."
    own = {key.removeprefix(prefix): array for key, array in private.items() if key.startswith(prefix)}
    first = {key: np.zeros_like(array) if from_zero else array for key, array in to_arrays(like).items()}
    load_arrays(head, own or first)
    return head


def to_private(name: str, head: nn.Linear) -> dict[str, NDArray[np.float32]]:
    """Return the head's arrays under its name."""
    return {f"{name}.{key}": array for key, array in to_arrays(head).items()}
