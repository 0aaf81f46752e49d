"""Sums in fixed point: whole numbers modulo 2^64, so that a sum is the same in any order, and masks can hide its terms.

Every field of what clients send has a limit on what one client may contribute to an entry. From it and the number of
clients follows how many binary places are left so that the sum cannot overflow. A number beyond the limit is an error,
and never cut to fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.calibration import LOWEST, SHAPES, Calibration
from btfl.core.summary import STATISTICS, Summary
from btfl.errors import InputError
from btfl.recipes.base import Description, Recipe, Update

Floats = NDArray[np.float64]
Whole = NDArray[np.uint64]

BITS = 62
"""Of a sum, without its sign, and one to spare for rounding."""
_SAMPLES = "samples"


@dataclass(frozen=True)
class Field:
    """One array of what clients send."""

    name: str
    shape: tuple[int, ...]
    limit: float
    """No client's entry may be beyond this, in absolute value."""


class Form:
    """Arrays of known shapes as one vector of whole numbers, and back.

    Parameters
    ----------
    fields : what is sent
    clients : how many terms a sum has at most
    """

    def __init__(self, fields: Sequence[Field], clients: int) -> None:
        self.fields = tuple(fields)
        self._places = [BITS - math.ceil(math.log2(max(field.limit, 1e-300) * max(clients, 1))) for field in fields]
        if min(self._places, default=1) < 1:
            raise InputError(
                f"sums over {clients} clients of numbers up to {max(one.limit for one in fields):.3g} do not fit into "
                "64 bits: lower secure_range, or the number of clients in a round (participation)"
            )

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return sum(math.prod(field.shape) for field in self.fields)

    def encode(self, arrays: Mapping[str, NDArray[Any]]) -> Whole:
        """Return one client's arrays as a vector; an ``InputError`` if a number is beyond its limit."""
        parts = []
        for field, places in zip(self.fields, self._places, strict=True):
            array = np.asarray(arrays[field.name], dtype=np.float64)
            top = float(np.abs(array).max(initial=0.0))
            if not top <= field.limit:
                raise InputError(f"{field.name} is out of range for a secure sum: {top:.3g}, beyond {field.limit:.3g}")
            parts.append(np.rint(np.ldexp(array.ravel(), places)).astype(np.int64))
        return np.concatenate(parts).view(np.uint64) if parts else np.zeros(0, np.uint64)

    def decode(self, total: Whole) -> dict[str, Floats]:
        """Return a sum of vectors as arrays."""
        if total.shape != (self.size,):
            raise InputError(f"a sum of {self.size} numbers is expected, not of shape {total.shape}")
        found, start = {}, 0
        for field, places in zip(self.fields, self._places, strict=True):
            size = math.prod(field.shape)
            part = total[start : start + size].view(np.int64).astype(np.float64)
            found[field.name] = np.ldexp(part, -places).reshape(field.shape)
            start += size
        return found


def form_of(recipe: Recipe, task: str, clients: int, most_samples: int, width: int) -> Form:
    """Return how the answers to a task are added up.

    Parameters
    ----------
    clients : that are asked
    most_samples : no client has more
    width : of the features
    """
    reach, most = recipe.settings.secure_range, float(most_samples)
    if task == "train":
        arrays = [Field(name, array.shape, reach * most) for name, array in sorted(recipe.initial().items())]
        return Form([*arrays, Field(_SAMPLES, (1,), most)], clients)
    if task == "calibrate":
        limits = {"calibration_moments": 1e4 * most, "calibration_samples": most, "calibration_weights": most}
        likely = -LOWEST * most + 1.0
        return Form([Field(name, shape, limits.get(name, likely)) for name, shape in SHAPES.items()], clients)
    limits = {"clients": 1.0, "zero_frequencies": 1.0}
    for kind in ("", "distorted_"):
        limits |= {f"{kind}class_feature_sums": reach * most, f"{kind}feature_scatter": reach**2 * most}
    shapes = {one.name: one.shape(recipe.classes, width) for one in STATISTICS}
    return Form([Field(name, shape, limits.get(name, most)) for name, shape in shapes.items()], clients)


def encode_result(form: Form, result: Update | Description | Calibration) -> Whole:
    """Return what a client adds to a secure sum: weights times samples and the samples, or its sums."""
    if isinstance(result, Update):
        weighted = {name: np.multiply(array, result.samples, dtype=np.float64) for name, array in result.upload.items()}
        return form.encode({**weighted, _SAMPLES: np.array([float(result.samples)])})
    return form.encode(result.summary.arrays if isinstance(result, Description) else result.arrays)


def mean_of(sums: Mapping[str, Floats]) -> dict[str, NDArray[np.float32]]:
    """Return the mean weights that a secure sum of updates comes to."""
    samples = float(sums[_SAMPLES][0])
    if samples < 1:
        raise InputError("nothing to average: no client took part")
    return {name: (array / samples).astype(np.float32) for name, array in sums.items() if name != _SAMPLES}


def summary_of(sums: Mapping[str, Floats]) -> Summary:
    """Return the total that a secure sum of summaries comes to."""
    return Summary.from_arrays(dict(sums))
