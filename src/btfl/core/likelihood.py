"""The discretised likelihood estimator (DLE): how probable a feature is under a client's data, or under everyone's.

A feature z is quantised to bits: zq_i = 1 ("on") exactly where z_i > atanh(1/2) = 0.549, else 0 ("off"). For the
features of a ReLU that is the paper's round(tanh(z)). A negative feature (GELU, a transformer, an embedding) is off,
however far below zero it is: its size is not read, so features that differ only below the threshold are equally
likely. The estimator keeps p_i, the share of samples with zq_i = 0, and treats the bits as independent:

    log Q(z) = sum_i log(p_i if zq_i = 0 else 1 - p_i)

always in log space, since a product over hundreds of dimensions underflows. Over the 2^d patterns of bits Q adds up to
one, whatever the sign of the features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, finite_array
from btfl.errors import InputError, UnknownNameError

Smoothing = Literal["add-one", "squeeze"]
THRESHOLD = math.atanh(0.5)
_MOST = 2**53  # samples: beyond it, whole numbers are not exact
_BELOW_ONE = math.nextafter(1.0, 0.0)


@dataclass(frozen=True, eq=False)
class DiscretisedLikelihood:
    """Frequencies of zeros in each dimension, and how many samples (of how many clients) they come from.

    Parameters
    ----------
    frequencies : shares of samples that are zero there, from 0 to 1; shape (dimensions,)
    count : samples they come from
    clients : clients these samples are of

    Example
    -------
    >>> DiscretisedLikelihood.fit([[0.0, 1.5], [0.0, 0.0]]).frequencies
    array([1. , 0.5])
    """

    frequencies: NDArray[np.float64]
    count: int
    clients: int = 1

    def __post_init__(self) -> None:
        frequencies = finite_array("frequencies", self.frequencies, ndim=1)
        if frequencies.size == 0:
            raise InputError("a likelihood needs at least one dimension")
        if (frequencies < 0).any() or (frequencies > 1).any():
            raise InputError("frequencies are shares of zeros: each must lie between 0 and 1")
        if not (1 <= self.count <= _MOST and 1 <= self.clients <= _MOST):
            told = f", not {self.count} of {self.clients}" if max(self.count, self.clients) <= _MOST else ""
            raise InputError(f"a likelihood comes from at least one sample of one client, at most 2^53 of them{told}")
        frequencies.setflags(write=False)
        object.__setattr__(self, "frequencies", frequencies)
        object.__setattr__(self, "count", int(self.count))
        object.__setattr__(self, "clients", int(self.clients))

    @classmethod
    def fit(cls, features: ArrayLike) -> DiscretisedLikelihood:
        """Count the zeros of a client's training features, shape (samples, dimensions), of any sign."""
        features_ = as_features(features)
        return cls((features_ <= THRESHOLD).mean(axis=0), count=len(features_))

    @classmethod
    def average(cls, likelihoods: Sequence[DiscretisedLikelihood]) -> DiscretisedLikelihood:
        """Average over clients, each counting the same, as the server does."""
        if not likelihoods:
            raise InputError("nothing to average: no client sent a likelihood")
        sizes = {one.dimensions for one in likelihoods}
        if len(sizes) > 1:
            raise InputError(f"likelihoods of different feature sizes cannot be averaged: {sorted(sizes)}")
        clients = sum(one.clients for one in likelihoods)
        mean = sum(one.frequencies * one.clients for one in likelihoods) / clients
        # rounding may push a mean of ones a bit beyond 1
        return cls(np.clip(mean, 0.0, 1.0), count=sum(one.count for one in likelihoods), clients=clients)

    def without(self, own: DiscretisedLikelihood) -> DiscretisedLikelihood:
        """Take a client's own share out of the average: what the *other* clients' data look like."""
        if own.dimensions != self.dimensions:
            raise InputError(f"feature sizes differ: {own.dimensions} against {self.dimensions}")
        rest, count = self.clients - own.clients, self.count - own.count
        if rest < 1 or count < 1:
            raise InputError("there are no other clients in this average; use global_from='all'")
        mean = (self.frequencies * self.clients - own.frequencies * own.clients) / rest
        return DiscretisedLikelihood(np.clip(mean, 0.0, 1.0), count=count, clients=rest)

    @property
    def dimensions(self) -> int:
        """The feature size d."""
        return len(self.frequencies)

    def log_likelihood(self, features: ArrayLike, smoothing: Smoothing = "add-one") -> NDArray[np.float64]:
        """Return log Q for each row of features."""
        features_ = as_features(features, width=self.dimensions)
        offset, log_odds = self.log_odds(smoothing)
        return offset + (features_ > THRESHOLD) @ log_odds

    def smoothed(self, smoothing: Smoothing = "add-one") -> NDArray[np.float64]:
        """Return the frequencies moved away from 0 and 1, where the logarithm would be infinite.

        ``add-one``: one more sample of each kind, (n p + 1)/(n + 2). ``squeeze``: 0.6 p + 0.2, as in the
        authors' program.
        """
        if smoothing == "add-one":
            # For 1e16 samples the quotient would be rounded to 1.
            return np.minimum((self.count * self.frequencies + 1.0) / (self.count + 2.0), _BELOW_ONE)
        if smoothing == "squeeze":
            return 0.6 * self.frequencies + 0.2
        raise UnknownNameError("smoothing", smoothing, get_args(Smoothing))

    def log_odds(self, smoothing: Smoothing = "add-one") -> tuple[float, NDArray[np.float64]]:
        """Return c and w with log Q = c + zq @ w, so that a batch is one matrix product.

        The entries of w are rounded to multiples of one power of two, so fine that it costs no more than the
        rounding of a sum does, and so coarse that every partial sum is exact. The product is then the same to the
        bit in whatever order the linear algebra library adds, hence however a stream is cut into batches.
        """
        p = self.smoothed(smoothing)
        log_zero, log_one = np.log(p), np.log1p(-p)
        weights = log_one - log_zero
        bound = float(np.abs(weights).sum())
        if bound > 0:
            grid = math.ldexp(1.0, math.frexp(bound)[1] - 52)
            weights = np.rint(weights / grid) * grid
        return float(log_zero.sum()), weights


class LikelihoodPair:
    """A client's own likelihood and everyone's, read in one product.

    Every partial sum of the product is exact (see ``log_odds``), so that a row is the same to the bit in any batch.
    """

    def __init__(
        self, local: DiscretisedLikelihood, everyone: DiscretisedLikelihood, smoothing: Smoothing = "add-one"
    ) -> None:
        local_offset, local_odds = local.log_odds(smoothing)
        global_offset, global_odds = everyone.log_odds(smoothing)
        self.offsets, self.odds = (local_offset, global_offset), np.stack([local_odds, global_odds], axis=1)

    def log_q(self, features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return log Q_l and log Q_g, (samples,) each."""
        log_q_local, log_q_global = np.ascontiguousarray((_above(features) @ self.odds).T)
        log_q_local += self.offsets[0]
        log_q_global += self.offsets[1]
        return log_q_local, log_q_global

    def log_q_of_one(self, features: NDArray[np.float64]) -> tuple[float, float]:
        """Return log Q_l and log Q_g of a single sample, shape (1, dimensions)."""
        ((log_q_local, log_q_global),) = _above(features).dot(self.odds).tolist()
        return log_q_local + self.offsets[0], log_q_global + self.offsets[1]


def _above(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 where a feature is above the threshold and 0 elsewhere; a product of mixed types would be slower."""
    return (features > THRESHOLD).astype(np.float64)
