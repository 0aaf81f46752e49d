"""How the features of a class are distributed: from everyone's class sums to scores of the classes.

A density is a function of the sums and the shrinkage that returns a ``Head``: a ``LinearHead`` where the scores are
linear in the features, else a ``ScoreHead``. Where clients have class means of their own, it is asked a second time
with the client's offsets from everyone's means (classes, dimensions) as third argument. To try another one, write the
function and enter it in ``DENSITIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from btfl.core.generative import class_scores
from btfl.core.heads import Head, LinearHead
from btfl.core.sums import ClassSums

Floats = NDArray[np.float64]
Density = Callable[..., Head]


def gaussian(sums: ClassSums, shrinkage: float, offsets: Floats | None = None) -> LinearHead:
    """One Gaussian for each class, all with the pooled within-class covariance: linear scores."""
    return class_scores(sums, shrinkage, offsets)


DENSITIES: Mapping[str, Density] = {"gaussian": gaussian}
