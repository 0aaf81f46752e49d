"""A linear head and nothing below it: for vectors that are features already, of a frozen backbone for example."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from btfl.models.network import Network, check_shape


def linear(sample_shape: Sequence[int], classes: int, *, bias: bool = True) -> Network:
    """Build the head for vectors (d,), which are the features, of any sign; ``bias``: whether it has one."""
    (size,) = check_shape(sample_shape, "vectors", "linear")
    return Network(nn.Identity(), size, classes, bias=bias)
