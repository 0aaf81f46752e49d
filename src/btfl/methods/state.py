"""A method's memory as plain JSON, and back: every way in which a saved state can be wrong is an ``InputError``."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.checks import printable
from btfl.errors import InputError

Floats = NDArray[np.float64]
LARGEST = 1e150
"""The largest number of a state, as of features: its square can still be computed with."""
LARGEST_WEIGHT = 1e6
"""The largest entry of a network's saved weights and moments: float32 layers still multiply such numbers."""
MOST = 2**53
"""The largest count of a state: beyond it whole numbers are not exact."""
_ROUNDING = 1e-9


def check_keys(state: Any, names: Iterable[str]) -> None:
    """Raise an error for a state that does not have exactly these entries."""
    known = list(names)
    if type(state) is dict and state.keys() == set(known):  # as it is nearly always: a server restores at each request
        return
    if not isinstance(state, Mapping):
        raise InputError(f"a state is a dictionary, not a {type(state).__name__}: give what .state gave")
    if missing := [name for name in known if name not in state]:
        raise InputError(f"the state lacks {', '.join(sorted(missing))}: give what .state gave")
    if unknown := sorted(str(name) for name in state if name not in known):
        raise InputError(f"the state has {', '.join(unknown)}, which this method does not: give what .state gave")


def count(name: str, value: Any) -> int:
    """Return a whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        said = printable(repr(value), 40)
        raise InputError(f"{name} in the state must be a whole number of at least 0, at most 2^53, not {said}")
    return value


def numbers(
    name: str, value: Any, shape: tuple[int | None, ...], least: float = -LARGEST, most: float = LARGEST
) -> Floats:
    """Return nested lists of numbers from ``least`` to ``most`` as a float64 array of this shape.

    Parameters
    ----------
    name : of the entry, for errors
    value : what the state has there
    shape : None stands for any length of at least 1
    least, most : what the method can reach; the last digits are given to rounding
    """
    try:
        array = np.array(value)
    except ValueError:
        raise InputError(f"{name} in the state must be an array, and its rows differ in length") from None
    if array.size == 0 and isinstance(value, list) and 0 in shape:
        return np.empty([length or 0 for length in shape])
    if array.dtype.kind not in "if":
        raise InputError(f"{name} in the state must be an array of numbers, not {array.dtype}")
    fits = [n == m or (m is None and n > 0) for n, m in zip(array.shape, shape, strict=False)]
    if array.ndim != len(shape) or not all(fits):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise InputError(f"{name} in the state has the shape {array.shape}, not ({wanted})")
    if not np.isfinite(array).all():
        raise InputError(f"{name} in the state holds NaN or infinite values")
    found = array.astype(np.float64)
    if (found < least - _ROUNDING).any() or (found > most + _ROUNDING).any():
        raise InputError(
            f"the state is out of range: {name} lies between {least:g} and {most:g}, "
            f"not {found.min():g} to {found.max():g}"
        )
    return found


def check_sums(name: str, rows: Floats) -> None:
    """Raise an error for rows that are not shares of one."""
    if not np.allclose(rows.sum(axis=-1), 1.0, rtol=0.0, atol=1e-6):
        raise InputError(f"the state is out of range: {name} must be shares that add up to 1")


def pack(array: NDArray[np.float32]) -> dict[str, Any]:
    """Return an array as JSON: its bytes as base64 text, with dtype and shape."""
    data = np.ascontiguousarray(array, dtype="<f4")
    return {"dtype": "float32", "shape": list(array.shape), "base64": base64.b64encode(data.tobytes()).decode("ascii")}


def unpack(name: str, value: Any, most: float = math.inf) -> NDArray[np.float32]:
    """Return the array that ``pack`` was given, to the bit; an entry beyond ``most`` in size is an error."""
    try:
        check_keys(value, ("dtype", "shape", "base64"))
        shape = tuple(count("shape", length) for length in value["shape"])
        data = base64.b64decode(value["base64"], validate=True)
    except (InputError, TypeError, ValueError, binascii.Error) as error:
        raise InputError(f"{name} in the state is not a packed array: {error}") from None
    if value["dtype"] != "float32" or len(data) != 4 * math.prod(shape):
        raise InputError(f"{name} in the state has {len(data)} bytes, which is not float32 of the shape {shape}")
    array = np.frombuffer(data, dtype="<f4").reshape(shape).astype(np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"{name} in the state holds NaN or infinite values")
    if array.size and np.abs(array).max() > most:
        raise InputError(f"the state is out of range: {name} holds weights above {most:g}")
    return array


def read_memory(state: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the numbers of a saved memory, each within its range; ``seen`` counts samples and is always there."""
    check_keys(state, (*ranges, "seen"))
    count("seen", state["seen"])
    for name, (least, most) in ranges.items():
        value = state[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise InputError(f"the state is out of range: {name} lies between {least:g} and {most:g}, not {value!r}")
    return {name: float(state[name]) for name in ranges}
