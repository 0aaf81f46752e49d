"""How the features of a class are distributed: from everyone's class sums to scores of the classes.

A density is a function of the sums and the shrinkage that returns a ``Head``: a ``LinearHead`` where the scores are
linear in the features, else a ``ScoreHead``. To try another one, write the function and enter it in ``DENSITIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from btfl.core.generative import class_scores
from btfl.core.heads import Head, LinearHead
from btfl.core.summary import ClassSums

Density = Callable[[ClassSums, float], Head]


def gaussian(sums: ClassSums, shrinkage: float) -> LinearHead:
    """One Gaussian for each class, all with the pooled within-class covariance: linear scores."""
    return class_scores(sums, shrinkage)


DENSITIES: Mapping[str, Density] = {"gaussian": gaussian}
