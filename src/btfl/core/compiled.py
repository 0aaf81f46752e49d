"""Steps that run compiled where they were built: a sample costs two or three microseconds, for about fifteen in numpy.

Where a C compiler is at hand when btfl is installed, ``hatch_build.py`` compiles the steps of BTFL and of Coherent.
Without one, or with ``BTFL_COMPILED=0`` in the environment, numpy does the same: answers agree to about 1e-14, and
either way they are the same to the bit however a stream is cut. Settings that are made for experiments, and large
heads, for which numpy's linear algebra is faster, run in numpy always.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.heads import Head, LinearHead
from btfl.core.products import LARGE, Precision

Floats = NDArray[np.float64]
_AT_ONCE = 8  # as in _samples.h


class Walk(Protocol):
    """A method's compiled function (``_walk.h``)."""

    def __call__(
        self, plan: Floats, features: Any, memory: tuple[float, ...], answers: Floats, found: Floats
    ) -> tuple[float, ...] | None:
        """Answer samples one after the other; return the memory afterwards, None if the features are not for it."""


class Compiled:
    """A client's compiled steps.

    Parameters
    ----------
    walk : the method's function
    plan : the numbers that stay the same for a client, in the order of the method's ``_compiled.c``
    dimensions, classes : of the heads
    columns : of the method's trace
    """

    def __init__(self, walk: Walk, plan: Sequence[Floats], dimensions: int, classes: int, columns: int) -> None:
        self._walk, self._plan = walk, np.concatenate([np.ravel(part) for part in plan])
        self._dimensions, self._classes, self._columns = dimensions, classes, columns

    def answer(self, batch: ArrayLike, memory: tuple[float, ...]) -> tuple[Floats, Floats, tuple[float, ...]]:
        """Return (samples, classes) answers, what was found, (columns, samples), and the memory afterwards."""
        answered = self._try(batch, memory) if type(batch) is np.ndarray and batch.ndim == 2 else None
        if answered is None:  # other types are turned into what is taken; what cannot be is refused
            features = as_features(batch, width=self._dimensions)
            answered = self._try(features if features.flags.aligned else features.copy(), memory)
            assert answered is not None
        return answered

    def _try(self, batch: NDArray[Any], memory: tuple[float, ...]) -> tuple[Floats, Floats, tuple[float, ...]] | None:
        samples = len(batch)
        answers, found = np.empty((samples, self._classes)), np.empty((self._columns, samples))
        after = self._walk(self._plan, batch, memory, answers, found)
        return None if after is None else (answers, found, after)


def walk_of(module: str) -> Walk | None:
    """Return a compiled module's function; None if it was not built, or is not wanted."""
    if os.environ.get("BTFL_COMPILED") == "0":
        return None
    try:
        found: Walk = import_module(module).walk
    except ImportError:
        return None
    return found


def suits(heads: Sequence[Head], precision: Precision) -> bool:
    """Return whether these heads are best read by compiled steps: small linear ones, in double precision."""
    linear = [head for head in heads if isinstance(head, LinearHead)]
    return len(linear) == len(heads) and precision != "single" and sum(head.weight.size for head in linear) < LARGE


def columns_of(heads: Sequence[Head]) -> Floats:
    """Return (1 + dimensions, columns): bias and weights of all heads side by side, padded with columns of zeros."""
    parts = []
    for head in heads:
        assert isinstance(head, LinearHead)
        parts.append(np.vstack([np.zeros(head.classes) if head.bias is None else head.bias, head.weight.T]))
    columns = np.concatenate(parts, axis=1)
    return np.pad(columns, ((0, 0), (0, -columns.shape[1] % _AT_ONCE)))
