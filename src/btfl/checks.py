"""Checks at the edge of the core: one sentence for each way an array can be wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.errors import InputError


def _real(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return real numbers as an array; what would lose something as float64 (a mask, an imaginary part) is refused."""
    try:
        array = np.asanyarray(value)
        if array.dtype == object:  # Python's own numbers, of any size
            array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from None
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"{name} must be an array of numbers without a mask: fill the masked entries first")
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be an array of numbers: real ones, not {array.dtype.name}")
    return np.asarray(array)


def finite_array(name: str, value: ArrayLike, ndim: int | None = None) -> NDArray[np.float64]:
    """Return a float64 copy, refusing what is not numeric, not finite or of another rank."""
    with np.errstate(over="ignore"):  # a long double that is too large becomes infinite, which is refused
        array = np.array(_real(name, value), dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimension{'s' * (ndim != 1)}, not shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinite values")
    return array


def as_features(features: ArrayLike, width: int | None = None) -> NDArray[np.float64]:
    """Return features as a float64 matrix (samples, dimensions), or say what is wrong with them."""
    if type(features) is np.ndarray and features.dtype == np.float64:
        array = np.ascontiguousarray(features)  # the usual case, in a hurry
    else:
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(_real("features", features), dtype=np.float64)
    if array.ndim != 2:
        raise InputError(
            f"features must be a matrix (samples, dimensions), not shape {array.shape}"
            + ("; for one sample pass features[None]" if array.ndim == 1 else "")
        )
    if array.shape[0] == 0:
        raise InputError("features hold no sample: an empty batch has nothing to predict")
    if width is not None and array.shape[1] != width:
        raise InputError(f"features have {array.shape[1]} dimensions, but {width} are expected")
    # One fast pass: the sum of squares is finite exactly where all entries are, and below about 1e150.
    flat = array.reshape(-1)
    if not math.isfinite(np.vdot(flat, flat)):
        rows = np.flatnonzero(~np.isfinite(array).all(axis=1))
        if len(rows):
            raise InputError(
                f"features hold NaN or infinite values in {len(rows)} of {len(array)} samples, "
                f"first in sample {rows[0]}"
            )
        raise InputError(f"features are too large to compute with: up to {np.abs(array).max():.3g}")
    return array


def as_one_sample(features: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Return one sample's features, a plain array of shape (1, dimensions), as float64, and their squared length."""
    if features.dtype != np.float64 or not features.flags.c_contiguous:
        features = np.ascontiguousarray(features, dtype=np.float64)
    single: NDArray[np.float64] = features
    length = float(np.vdot(single, single))
    if not math.isfinite(length):
        as_features(single)  # says what is wrong
    return single, length


def as_labels(labels: ArrayLike, count: int, classes: int) -> NDArray[np.int64]:
    """Return labels as int64 (samples,), or say what is wrong with them."""
    if not isinstance(classes, int | np.integer):
        raise InputError(f"classes must be a whole number, how many there are, not {classes!r}")
    array = np.asarray(labels)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(f"labels must be {count} whole numbers, not {array.dtype} of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < classes:
        raise InputError(f"labels run from {array.min()} to {array.max()}, but there are {classes} classes")
    return array.astype(np.int64)


def printable(text: object, most: int = 500) -> str:
    """Return text of a stranger as it may stand in a log: cut to a length, control characters escaped.

    >>> printable("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    whole = str(text)
    cut = whole if len(whole) <= most else f"{whole[:most]} ... ({len(whole):,} characters)"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)


def check_floats(name: str, array: object, *dtypes: type[np.floating[Any]]) -> NDArray[Any]:
    """Return an array that was received if it is a plain one of these types and finite, else raise an ``InputError``.

    Nothing is converted: a string, a complex number or a long double is refused, not turned into what it resembles.
    """
    kinds = " or ".join(dtype.__name__ for dtype in dtypes)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise InputError(f"{printable(name, 80)} is not an array of floating-point numbers ({kinds})")
    if not any(array.dtype == dtype for dtype in dtypes):
        raise InputError(
            f"{printable(name, 80)} is not an array of floating-point numbers ({kinds}): it holds {array.dtype.name}"
        )
    # The largest and the smallest are finite exactly if all are, and need no array of their own.
    if not (math.isfinite(array.max(initial=0.0)) and math.isfinite(array.min(initial=0.0))):
        raise InputError(f"{printable(name, 80)} holds NaN or infinite values")
    return array
