"""Heads on frozen features: what a client has two of, and what turns features into logits.

Most heads are linear, and several linear heads are one product. Any other is a ``ScoreHead``: a function of the
features. Both can be put under other label shares, multiplied, and stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from btfl.checks import finite_array
from btfl.core.products import Precision, Product, Rowwise, product_with
from btfl.core.softmax import entropy, log_softmax
from btfl.errors import InputError

Floats = NDArray[np.float64]
_LARGE_LOGIT = 100.0
_NUMBERS_AT_ONCE = 2**19  # 4 MB
_ROWS_AT_ONCE = 256  # at least: a product of fewer rows reads large heads too often

HeadLike = Any
"""A head; a (classes, dimensions) matrix; a pair (weight, bias); or anything with ``.weight`` and ``.bias``, such as a
torch ``nn.Linear``."""


class Head(Protocol):
    """What turns features into one logit for each class."""

    @property
    def classes(self) -> int:
        """The number of classes."""

    def logits(self, features: Floats) -> Floats:
        """Return (samples, classes) logits; each row the same to the bit in a batch of any size."""

    def under(self, log_shares: Floats, temperature: float = 1.0) -> Head:
        """Return the head of these scores over a temperature, plus the log shares of the classes."""


@dataclass(frozen=True, eq=False, repr=False)
class LinearHead:
    """A linear head.

    Parameters
    ----------
    weight : (classes, dimensions)
    bias : (classes,), or None

    Examples
    --------
    >>> import numpy as np
    >>> from btfl import LinearHead
    >>> LinearHead(np.eye(3, 5))
    LinearHead(3 classes, 5 dimensions, no bias)
    """

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
        """Return the head that a value stands for.

        Parameters
        ----------
        value : a ``LinearHead``; a (classes, dimensions) matrix; a pair (weight, bias); or anything with ``.weight``
            and ``.bias``, such as a torch ``nn.Linear``
        """
        if isinstance(value, LinearHead):
            return value
        if isinstance(value, tuple) and len(value) == 2:
            weight, bias = value
        elif hasattr(value, "weight"):
            weight, bias = value.weight, getattr(value, "bias", None)
        else:
            weight, bias = value, None
        return cls(_plain(weight), None if bias is None else _plain(bias))

    def check_size(self, what: str, classes: int, dimensions: int) -> None:
        """Raise an ``InputError`` if this head, called ``what``, is not (classes, dimensions)."""
        if self.weight.shape == (classes, dimensions):
            return
        turned = self.weight.shape == (dimensions, classes)
        raise InputError(
            f"the {what} is {self.weight.shape}, but the summaries are for (classes, dimensions) = "
            f"({classes}, {dimensions}){': pass the transpose of its weight' if turned else ''}"
        )

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
        logits: Floats = LinearStack([self])(features)[0]
        return logits

    def __repr__(self) -> str:
        bias = "no bias" if self.bias is None else "bias"
        return f"LinearHead({self.classes} classes, {self.dimensions} dimensions, {bias})"


@dataclass(frozen=True, eq=False)
class ScoreHead:
    """A head that is any function of the features: for densities whose scores are not linear."""

    classes: int
    score: Callable[[Floats], Floats]
    """(samples, dimensions) features -> (samples, classes) logits, each row on its own."""

    def logits(self, features: Floats) -> Floats:
        """Return (samples, classes) logits."""
        return self.score(features)

    def under(self, log_shares: Floats, temperature: float = 1.0) -> ScoreHead:
        """Return the head of these scores over a temperature, plus the log shares of the classes."""
        return ScoreHead(self.classes, lambda features: self.score(features) / temperature + log_shares)


def product(one: Head, other: Head) -> Head:
    """Return the head whose softmax is the product of both heads' softmaxes, normalised."""
    if isinstance(one, LinearHead) and isinstance(other, LinearHead):
        return one.times(other)
    return ScoreHead(one.classes, lambda features: one.logits(features) + other.logits(features))


def probabilities(head: Head, features: NDArray[Any]) -> Floats:
    """Return a head's (samples, classes) softmax."""
    return np.exp(log_softmax(head.logits(np.asarray(features, dtype=np.float64))))


def mean_entropy(head: Head, features: NDArray[Any]) -> float:
    """Return a head's mean entropy over (samples, dimensions) features, in nats."""
    return float(entropy(log_softmax(head.logits(np.asarray(features, dtype=np.float64)))).mean())


class HeadStack(Protocol):
    """Several heads read at once."""

    large_above: float
    """The squared length of features from which on logits may be too large for a plain exponential."""
    rows_at_once: int
    """So many samples are best read at once: they and their logits stay in the processor's caches."""

    def by_sample(self, features: Floats) -> Floats:
        """Return (samples, heads, classes) logits, as they lie in memory."""

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (heads, classes) logits of a single sample, shape (1, dimensions), whose squared length is known."""

    def large(self, features: Floats) -> NDArray[np.bool_] | None:
        """Return which samples may have logits too large for a plain exponential, in the shape of ``by_sample``."""


def stack(heads: Sequence[Head], precision: Precision = "same-bits") -> HeadStack:
    """Stack heads: in one product if all are linear, else one after the other."""
    linear = [head for head in heads if isinstance(head, LinearHead)]
    if len(linear) < len(heads):
        return AnyHeads(heads)
    return LinearStack(linear, lambda weights: product_with(weights, precision))


class LinearStack:
    """Several linear heads applied in one product.

    Parameters
    ----------
    heads : all of the same size
    product : makes the product from the (dimensions, heads x classes) weights; see ``products.py``
    """

    def __init__(self, heads: Sequence[LinearHead], product: Callable[[Floats], Product] = Rowwise) -> None:
        weights = np.ascontiguousarray(np.concatenate([head.weight for head in heads]).T)
        made = product(weights)
        self._rows, self._row = made.rows, made.of_one
        self._bias: Floats | None = None
        if any(head.bias is not None for head in heads):
            self._bias = np.concatenate([np.zeros(h.classes) if h.bias is None else h.bias for h in heads])
        self._shape = (len(heads), heads[0].classes)
        # |w z + c| <= |w| |z| + |c|: logits of features shorter than this stay below the limit
        with np.errstate(over="ignore"):  # infinite: no features are short enough
            longest = float(np.sqrt((weights**2).sum(axis=0).max()))
        offset = 0.0 if self._bias is None else float(np.abs(self._bias).max())
        self.large_above = (_LARGE_LOGIT - offset) * abs(_LARGE_LOGIT - offset) / max(longest, 1e-100) ** 2
        self.rows_at_once = max(_NUMBERS_AT_ONCE // sum(weights.shape), _ROWS_AT_ONCE)

    def __call__(self, features: Floats) -> Floats:
        """Return (heads, samples, classes) logits."""
        return np.ascontiguousarray(self.by_sample(features).transpose(1, 0, 2))

    def by_sample(self, features: Floats) -> Floats:
        """Return (samples, heads, classes) logits, as they lie in memory."""
        flat = self._rows(features)
        if self._bias is not None:
            flat += self._bias
        return flat.reshape(len(features), *self._shape)

    def large(self, features: Floats) -> NDArray[np.bool_] | None:
        """Return which samples may have logits too large for a plain exponential, in the shape of ``by_sample``."""
        lengths = np.vecdot(features, features)
        if np.maximum.reduce(lengths) <= self.large_above:  # as it is nearly always
            return None
        found: NDArray[np.bool_] = lengths > self.large_above
        return found[:, None, None]

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (heads, classes) logits of a single sample, shape (1, dimensions), whose squared length is known."""
        flat = self._row(features, length)
        if self._bias is not None:
            flat += self._bias
        return flat.reshape(self._shape)


class AnyHeads:
    """Heads of any kind, read one after the other."""

    large_above = -1.0  # of any sample: nothing is known of their logits

    def __init__(self, heads: Sequence[Head]) -> None:
        self._heads = heads
        self.rows_at_once = max(_NUMBERS_AT_ONCE // (len(heads) * heads[0].classes), _ROWS_AT_ONCE)

    def by_sample(self, features: Floats) -> Floats:
        """Return (samples, heads, classes) logits."""
        return np.stack([head.logits(features) for head in self._heads], axis=1)

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (heads, classes) logits of a single sample, shape (1, dimensions)."""
        single: Floats = self.by_sample(features)[0]
        return single

    def large(self, features: Floats) -> NDArray[np.bool_] | None:
        """Return that any sample's logits may be large."""
        return np.ones((len(features), 1, 1), dtype=np.bool_)


def _plain(value: Any) -> NDArray[Any]:
    """Return an array from anything that holds numbers; a tensor of torch need not be detached first."""
    return np.asanyarray(value.detach().cpu() if hasattr(value, "detach") else value)
