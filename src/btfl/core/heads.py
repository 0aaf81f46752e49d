"""A linear head on frozen features: what a client has two of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import finite_array
from btfl.errors import InputError

Floats = NDArray[np.float64]
_LARGE_LOGIT = 100.0
HeadLike = Union["LinearHead", ArrayLike, tuple[ArrayLike, ArrayLike | None]]
"""A head, a (classes, dimensions) matrix, or a pair (weight, bias)."""


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Weights of shape (classes, dimensions) and, if there is one, a bias of shape (classes,)."""

    weight: Floats
    bias: Floats | None = None

    def __post_init__(self) -> None:
        weight = finite_array("the head's weight", self.weight, ndim=2)
        if 0 in weight.shape:
            raise InputError(f"a head needs at least one class and one dimension, not shape {weight.shape}")
        object.__setattr__(self, "weight", weight)
        if self.bias is not None:
            bias = finite_array("the head's bias", self.bias, ndim=1)
            if len(bias) != len(weight):
                raise InputError(f"the head has {len(weight)} classes but a bias of {len(bias)}")
            object.__setattr__(self, "bias", bias)

    @classmethod
    def of(cls, value: HeadLike) -> LinearHead:
        """Take a head, a (classes, dimensions) matrix, or a pair (weight, bias)."""
        if isinstance(value, LinearHead):
            return value
        if isinstance(value, tuple) and len(value) == 2:
            weight, bias = value
            return cls(np.asarray(weight), None if bias is None else np.asarray(bias))
        return cls(np.asarray(value))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.weight)

    @property
    def dimensions(self) -> int:
        """The feature size d."""
        return int(self.weight.shape[1])

    def under(self, log_shares: Floats, temperature: float = 1.0) -> LinearHead:
        """Return the head of these scores over a temperature, plus the log shares of the classes."""
        bias = np.zeros(self.classes) if self.bias is None else self.bias
        return LinearHead(self.weight / temperature, bias / temperature + log_shares)

    def times(self, other: LinearHead) -> LinearHead:
        """Return the head whose softmax is the product of both heads' softmaxes, normalised."""
        biases = [head.bias for head in (self, other) if head.bias is not None]
        return LinearHead(self.weight + other.weight, sum(biases[1:], start=biases[0]) if biases else None)

    def logits(self, features: Floats) -> Floats:
        """Return (samples, classes) logits; each row the same to the bit in a batch of any size."""
        logits: Floats = RowwiseLinear([self])(features)[0]
        return logits


class RowwiseLinear:
    """Several heads applied in one product, each row to the bit as it would be alone.

    A plain matrix product may add in another order for another batch size. Broadcasting over rows makes the linear
    algebra library do the same product for each row, so a stream gives the same numbers however it is cut.
    """

    def __init__(self, heads: Sequence[LinearHead]) -> None:
        self._weights = np.ascontiguousarray(np.concatenate([head.weight for head in heads]).T)
        self._bias: Floats | None = None
        if any(head.bias is not None for head in heads):
            self._bias = np.concatenate([np.zeros(h.classes) if h.bias is None else h.bias for h in heads])
        self._shape = (len(heads), heads[0].classes)
        # |w z + c| <= |w| |z| + |c|: logits of features shorter than this stay below the limit
        longest = float(np.sqrt((self._weights**2).sum(axis=0).max()))
        offset = 0.0 if self._bias is None else float(np.abs(self._bias).max())
        self.large_above = (_LARGE_LOGIT - offset) * abs(_LARGE_LOGIT - offset) / max(longest, 1e-100) ** 2
        """The squared length of features from which on logits may be too large for a plain exponential."""

    def __call__(self, features: Floats) -> Floats:
        """Return (heads, samples, classes) logits."""
        return np.ascontiguousarray(self.by_sample(features).transpose(1, 0, 2))

    def by_sample(self, features: Floats) -> Floats:
        """Return (samples, heads, classes) logits, as they lie in memory."""
        flat: Floats = np.matmul(features[:, None, :], self._weights)
        if self._bias is not None:
            flat += self._bias
        return flat.reshape(len(features), *self._shape)

    def large(self, features: Floats) -> NDArray[np.bool_] | None:
        """Say which samples may have logits too large for a plain exponential, in the shape of ``by_sample``."""
        found: NDArray[np.bool_] = np.vecdot(features, features) > self.large_above
        return found[:, None, None] if found.any() else None

    def of_one(self, features: Floats) -> Floats:
        """Return (heads, classes) logits of a single sample, shape (1, dimensions)."""
        flat: Floats = features @ self._weights
        if self._bias is not None:
            flat += self._bias
        return flat.reshape(self._shape)
