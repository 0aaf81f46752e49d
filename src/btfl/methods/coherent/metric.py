"""Features as everyone's covariance sees them: white within the classes, and split by what labels can explain."""

from __future__ import annotations

import hashlib

import numpy as np
import scipy  # loads scipy.linalg when it is first used, so that importing btfl is quick
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.generative import everyones_sums, moments, shrunk
from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]


class Metric:
    """Mahalanobis distances to everyone's class means, and the directions in which these do not differ.

    Where classes are Gaussians with one covariance, white features have variance 1 in all directions within a class.
    In the directions that are orthogonal to all differences of class means, the label makes no difference at all: a
    sample looks the same there whatever its class is, so that no change of labels can be seen.

    Parameters
    ----------
    bundle : with everyone's sums
    settings : Coherent's, for the shrinkage of the covariance and the weight of distorted copies
    """

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        sums = everyones_sums(bundle, settings.distorted)
        means, within, mean_square = moments(sums)
        root = np.linalg.cholesky(shrunk(within, settings.chosen(bundle).shrinkage, mean_square))
        known = sums.counts > 0
        self._whitening = scipy.linalg.solve_triangular(root, np.eye(len(root)), lower=True).T
        self._means = means[known] @ self._whitening
        self._lengths = (self._means**2).sum(axis=1)
        shares = sums.counts[known] / sums.counts.sum()
        self._mean = shares @ self._means
        between = np.sqrt(shares)[:, None] * (self._means - self._mean)
        labelled = min(len(between) - 1, len(root) // 2)  # with very many classes, the directions that matter least
        self._labels = np.linalg.svd(between, full_matrices=False)[2][:labelled].T
        self.directions = len(root) - labelled
        """How many directions ``unlabelled`` looks at."""
        self.mark = hashlib.sha256(self._means.tobytes()).hexdigest()[:16]
        """16 hex digits that another model's metric does not share: numbers of one mean nothing in another."""

    def white(self, features: Floats) -> Floats:
        """Return (samples, dimensions) features with variance 1 in all directions within a class."""
        return features @ self._whitening

    def nearest(self, white: Floats) -> Floats:
        """Return (samples,): the squared distance of white features to the nearest class mean."""
        return np.asarray((white**2).sum(axis=1) + (self._lengths - 2 * white @ self._means.T).min(axis=1))

    def unlabelled(self, white: Floats) -> Floats:
        """Return (samples, dimensions): how far white features are off everyone's mean, where labels do not matter."""
        off = white - self._mean
        return np.asarray(off - (off @ self._labels) @ self._labels.T)
