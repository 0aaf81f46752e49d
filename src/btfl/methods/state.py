"""A method's memory as plain JSON, and back: every way in which a saved state can be wrong is an ``InputError``."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError

Floats = NDArray[np.float64]


def check_keys(state: Any, names: Iterable[str]) -> None:
    """Raise an error for a state that does not have exactly these entries."""
    if not isinstance(state, Mapping):
        raise InputError(f"a state is a dictionary, not a {type(state).__name__}: give what .state gave")
    known = list(names)
    if missing := [name for name in known if name not in state]:
        raise InputError(f"the state lacks {', '.join(sorted(missing))}: give what .state gave")
    if unknown := sorted(str(name) for name in state if name not in known):
        raise InputError(f"the state has {', '.join(unknown)}, which this method does not: give what .state gave")


def count(name: str, value: Any) -> int:
    """Return a whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} in the state must be a whole number of at least 0, not {value!r}")
    return value


def numbers(name: str, value: Any, shape: tuple[int | None, ...]) -> Floats:
    """Return nested lists of finite numbers as a float64 array of this shape; None: any length of at least 1."""
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
    return array.astype(np.float64)


def pack(array: NDArray[np.float32]) -> dict[str, Any]:
    """Return an array as JSON: its bytes as base64 text, with dtype and shape."""
    data = np.ascontiguousarray(array, dtype="<f4")
    return {"dtype": "float32", "shape": list(array.shape), "base64": base64.b64encode(data.tobytes()).decode("ascii")}


def unpack(name: str, value: Any) -> NDArray[np.float32]:
    """Return the array that ``pack`` was given, to the bit."""
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
