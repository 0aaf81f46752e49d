"""A line between a client's features and all others': the log ratio of two Gaussians of one covariance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from btfl.core.generative import solve_shrunk
from btfl.errors import InputError

Floats = NDArray[np.float64]


def discriminant(
    own_features: Floats, samples: float, feature_sum: Floats, scatter: Floats, shrinkage: float
) -> tuple[Floats, float]:
    """Return weight and offset of log N(z; own mean, C) - log N(z; others' mean, C), C the covariance of all."""
    others = samples - len(own_features)
    if len(own_features) == 0 or others < 1:
        raise InputError("a discriminant needs samples of the client and of others")
    mean = feature_sum / samples
    own_mean = own_features.mean(axis=0)
    others_mean = (feature_sum - own_features.sum(axis=0)) / others
    covariance = scatter / samples - np.outer(mean, mean)
    weight = solve_shrunk(covariance, shrinkage, float(np.trace(scatter)) / samples, (own_mean - others_mean)[:, None])
    line = weight[:, 0]
    return line, float(-0.5 * line @ (own_mean + others_mean))
