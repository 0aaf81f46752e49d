"""The product of features with all heads at once, so that an answer does not depend on how a stream is cut.

A linear algebra library adds in another order for another batch size, and the last digits of a sum depend on the order.
There are two ways to the same bits for a sample alone and in any batch:

- Row by row (``Rowwise``): the same product is done for each sample. Small heads stay in the processor's nearest
  cache, and it costs next to nothing.
- On grids (``OnGrids``): weights and features are rounded so that every partial sum is exact, and then the order does
  not matter: the whole batch is one product, on any library and any number of threads. From ``LARGE`` weights on
  this is several times faster, since the weights are read once for all samples.

``Plain`` rounds nothing and promises nothing: cuts of one stream agree to about 1e-12 in double precision.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from btfl.errors import UnknownNameError

Floats = NDArray[np.float64]
Precision = Literal["same-bits", "double", "single"]
PRECISION_HELP = (
    "Of the product with the heads. same-bits: an answer is the same to the bit however the stream is cut; for that, "
    "heads of 65,536 weights or more are rounded, which is half as coarse as float32. double: no head is rounded, and "
    "with large ones cuts agree to 1e-12. single: float32, half the memory, and cuts agree to 1e-5."
)
LARGE = 2**16
"""Weights of all heads together, from which on they are rounded: half a megabyte, as much as a near cache holds."""
_FEATURE_BITS, _WEIGHT_BITS = 26, 27  # together the 53 of a float64
_ROOM = 1 + 2**-16  # for what rounding adds to a length; enough up to a million dimensions
_LINE = 64  # bytes of a cache line
_TO_GRID = 1.5 * 2**52  # a number plus this many steps of a grid has lost all digits below the grid


class Product(Protocol):
    """Features times a (dimensions, columns) matrix."""

    def rows(self, features: Floats) -> Floats:
        """Return (samples, columns) products of (samples, dimensions) features, freshly made."""

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (1, columns) of a single sample, shape (1, dimensions), whose squared length is known."""


class Rowwise:
    """Broadcasting over rows makes the linear algebra library do the same product for each row."""

    def __init__(self, weights: Floats) -> None:
        self._weights = weights

    def rows(self, features: Floats) -> Floats:
        """Return (samples, columns) products."""
        products: Floats = np.matmul(features[:, None, :], self._weights)
        return products[:, 0]

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (1, columns) of a single sample: the product of ``rows``, with less around it."""
        single: Floats = features.dot(self._weights)
        return single


class OnGrids:
    """Every partial sum is exact, so that the order of additions does not matter.

    A column w is rounded to multiples of a power of two, so that it has at most 2^27 of them as its length; a sample z
    likewise to 2^26. Then every partial sum of products is a whole number of steps, at most |w||z| <= 2^53 of them,
    which a float64 holds exactly. A logit is off by about 1e-8 |w||z|, and by at most sqrt(d) (2^-26 + 2^-27) |w||z|. A
    sample's grid depends on the sample alone.
    """

    def __init__(self, weights: Floats) -> None:
        lengths = np.sqrt((weights * weights).sum(axis=0)) * _ROOM
        shift = _TO_GRID * np.ldexp(1.0, np.frexp(lengths)[1] - _WEIGHT_BITS)
        self._weights = aligned((weights + shift) - shift)

    def rows(self, features: Floats) -> Floats:
        """Return (samples, columns) products."""
        exponents = np.frexp(np.vecdot(features, features))[1]
        shift = np.ldexp(_TO_GRID, (exponents + 1) // 2 - _FEATURE_BITS)[:, None]
        rounded = features + shift
        rounded -= shift
        products: Floats = np.matmul(rounded, self._weights)
        return products

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (1, columns) of a single sample."""
        shift = math.ldexp(_TO_GRID, (math.frexp(length)[1] + 1) // 2 - _FEATURE_BITS)
        rounded = features + shift
        rounded -= shift
        single: Floats = rounded.dot(self._weights)
        return single


class Plain:
    """One product for the whole batch, in double or single precision; the last digits depend on its size."""

    def __init__(self, weights: Floats, dtype: type[np.floating[Any]]) -> None:
        self._dtype = dtype
        self._weights = aligned(weights.astype(dtype, copy=False))

    def rows(self, features: Floats) -> Floats:
        """Return (samples, columns) products."""
        products: Floats = np.matmul(features.astype(self._dtype, copy=False), self._weights)
        return products.astype(np.float64, copy=False)

    def of_one(self, features: Floats, length: float) -> Floats:
        """Return (1, columns) of a single sample."""
        return self.rows(features)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that begins where a cache line does: a large matrix is read up to a tenth faster, by a vector."""
    room = np.empty(array.nbytes + _LINE, dtype=np.uint8)
    begin = -room.ctypes.data % _LINE
    found = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def product_with(weights: Floats, precision: Precision = "same-bits") -> Product:
    """Return the product with a (dimensions, columns) matrix that suits its size and what is asked for."""
    if precision == "single":
        return Plain(weights, np.float32)
    if precision not in ("same-bits", "double"):
        raise UnknownNameError("precision", precision, ("same-bits", "double", "single"))
    if weights.size < LARGE:
        return Rowwise(weights)
    return OnGrids(weights) if precision == "same-bits" else Plain(weights, np.float64)
