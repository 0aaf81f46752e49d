"""Signals and vectors in units of their own spread: mean 0 and standard deviation 1 in every channel or column.

Mean and deviation are those of the training parts of all clients that take part in training, never of validation or
test data. A federation needs sums
for it and nothing else: each client adds up its samples, then, once the mean is known, their squared distances from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.data.partition import Partition
from btfl.data.samples import Scaling, Values
from btfl.data.source import Source


def scaling_of(source: Source, partition: Partition) -> Scaling:
    """Return mean and deviation of every channel or column over the training parts of clients that are not held out."""
    count = sum(_rows(part).shape[0] for part in _training(source, partition))
    mean = sum(_rows(part).sum(axis=0, dtype=np.float64) for part in _training(source, partition)) / count
    squares = sum(np.square(_rows(part).astype(np.float64) - mean).sum(axis=0) for part in _training(source, partition))
    return Scaling(mean, np.sqrt(squares / count))


def standardised(source: Source, partition: Partition) -> Source:
    """Return the source with the scaling that its samples get before a network sees them; images have a fixed one."""
    if source.kind == "images":
        return source
    return replace(source, scaling=scaling_of(source, partition))


def _training(source: Source, partition: Partition) -> Iterator[Values]:
    for part in partition.parts[: partition.seen]:
        yield source.pool.values[part.train]


def _rows(values: Values) -> NDArray[Any]:
    return values.reshape(-1, values.shape[-1])
