"""A small perceptron for vectors, and for small images and short signals; d = 64. Not a model of the paper."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from btfl.errors import InputError
from btfl.models.network import Network, check_shape

FEATURES = 64


def mlp(sample_shape: Sequence[int], classes: int, *, hidden: int = 128) -> Network:
    """Build the perceptron: a sample as one row, ``hidden`` units, then 64, with biases below the head."""
    size = math.prod(check_shape(sample_shape))
    if not isinstance(hidden, int) or hidden < 1:
        raise InputError(f"mlp: hidden must be a whole number of at least 1, not {hidden}")
    extractor = nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            fc1=nn.Linear(size, hidden),
            relu1=nn.ReLU(),
            fc2=nn.Linear(hidden, FEATURES),
            relu2=nn.ReLU(),
        )
    )
    return Network(extractor, FEATURES, classes, nonnegative=True)
