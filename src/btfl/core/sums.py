"""Sums over samples by class, as they are and over distorted copies: what class-conditional Gaussians are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PLAIN, DISTORTED = "", "distorted_"
KINDS = (PLAIN, DISTORTED)
"""Sums over the samples as they are, and over distorted copies of them: how the names begin."""


class ClassSums(NamedTuple):
    """n_k, s_k and S: what class-conditional Gaussians are made of."""

    counts: Floats
    """(classes,) samples of each class."""
    sums: Floats
    """(classes, dimensions) sums of their features."""
    scatter: Floats
    """(dimensions, dimensions) sum of z z' over all samples."""
