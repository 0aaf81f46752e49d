"""The same formula for a batch and for a sample that comes alone.

Arrays of one element cost more than the arithmetic on them, so a single sample is computed in Python's own floats. A
decision is written once, over an ``Arithmetic``: ``ARRAYS`` works on (samples,) arrays, ``SCALARS`` on floats. Every
exponential and logarithm of a float goes through the same numpy loop as a batch's, so that the answers agree to the
bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from btfl.core.expectation import weight_and_complement, weight_of_one


@dataclass(frozen=True)
class Arithmetic:
    """The functions that differ between arrays and floats."""

    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    clip: Callable[[Any, float], Any]
    """(value, limit) -> value within plus or minus the limit."""
    minus: Callable[[Any, Any], Any]
    """One truth value minus another: 1, 0 or -1."""
    expected_weight: Callable[[Any, Any, Any], Any]
    """(a, b, log tau) -> e."""


ARRAYS = Arithmetic(
    exp=np.exp,
    log=np.log,
    minimum=np.minimum,
    maximum=np.maximum,
    clip=lambda value, limit: np.minimum(np.maximum(value, -limit), limit),
    minus=lambda one, other: one.astype(np.int8) - other.astype(np.int8),
    expected_weight=lambda a, b, log_tau: weight_and_complement(a, b, log_tau)[0],
)
SCALARS = Arithmetic(
    exp=lambda value: float(np.exp(value)),
    log=lambda value: float(np.log(value)),
    minimum=min,
    maximum=max,
    clip=lambda value, limit: min(max(value, -limit), limit),
    minus=operator.sub,
    expected_weight=weight_of_one,
)
