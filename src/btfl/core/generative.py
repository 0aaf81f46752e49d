"""The generative head: class-conditional Gaussians on the features, from sums that all clients add up.

Not in the paper; see docs/method.md, "Beyond the paper". With n_k samples of class k, their feature sums s_k and the
sum S of all z z', the means are mu_k = s_k / n_k and the pooled within-class covariance is

    V = (S - sum_k n_k mu_k mu_k') / n,     shrunk to (1 - r) V + r (tr V / d) I.

The score of a class is linear in the feature,

    s_k(z) = mu_k' V^-1 z - mu_k' V^-1 mu_k / 2,        p(y | z) = softmax(s(z)/T + log pi),

and, where two populations differ only in how often each class occurs, so is the likelihood ratio between them exact:

    log tau = log sum_k pi_l(k) exp(s_k/T) - log sum_k pi_g(k) exp(s_k/T).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from btfl.checks import finite_array
from btfl.core.heads import LinearHead
from btfl.core.sums import DISTORTED, PLAIN, ClassSums
from btfl.errors import InputError

if TYPE_CHECKING:
    from btfl.core.bundle import ClientBundle
    from btfl.core.summary import Summary

Floats = NDArray[np.float64]

DISTORTED_WEIGHT = 1.0
"""How much a distorted copy counts in the class statistics, beside the sample itself."""
OPENNESS = 0.2
"""How much of everyone's label shares is mixed into a client's: no class is impossible."""

_LEAST_VARIANCE = 1e-6  # of the features' mean square, where there is no variance at all
_RIDGE = 1e-9  # of the variance, even without shrinkage: dead features must not make the covariance singular


_NAMES = ("class_counts", "class_feature_sums", "feature_scatter")
NEEDED = tuple(f"global_{name}" for name in _NAMES)
"""The bundle's statistics that everyone's sums are read from."""
OPTIONAL = tuple(f"global_{DISTORTED}{name}" for name in _NAMES)
"""The same over distorted copies, where there are any."""


def with_copies(plain: ClassSums, copies: ClassSums, weight: float = DISTORTED_WEIGHT) -> ClassSums:
    """Return the sums over samples and their distorted copies, a copy counting so much."""
    return ClassSums(*(array + weight * copy for array, copy in zip(plain, copies, strict=True)))


def everyones_sums(bundle: ClientBundle, distorted: float = 0.0) -> ClassSums:
    """Return everyone's class sums from a bundle, those of distorted copies counting so much more.

    A bundle without copies, of an app that sent none or of an older btfl, has the samples as they are alone.
    """
    plain = _sums(bundle, PLAIN)
    if not any(name in bundle.statistics for name in OPTIONAL):
        return plain
    copies = _sums(bundle, DISTORTED)
    for name, array, copy in zip(OPTIONAL, plain, copies, strict=True):
        if copy.shape != array.shape:
            raise InputError(f"{name} has the shape {copy.shape}, but that of the samples has {array.shape}")
    return with_copies(plain, copies, distorted)


def _sums(bundle: ClientBundle, kind: str) -> ClassSums:
    names = [f"global_{kind}{name}" for name in _NAMES]
    bundle.require(*names, by="a generative head")
    return ClassSums(*(np.asarray(bundle.statistics[name], dtype=np.float64) for name in names))


def class_scores(of: ClassSums, shrinkage: float, offsets: Floats | None = None) -> LinearHead:
    """Return the scores s_k as a linear head; a class nobody has is scored as the mean of all.

    Parameters
    ----------
    of : counts (classes,), feature sums (classes, dimensions) and scatter (dimensions, dimensions)
    shrinkage : r, from 0 to 1
    offsets : (classes, dimensions), how far one client's class means are from everyone's; None: not at all
    """
    if not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage is a share from 0 to 1, not {shrinkage}")
    with np.errstate(all="ignore"):  # what overflows is refused below
        means, within, mean_square = moments(of)
        means = means if offsets is None else means + offsets
        try:
            weights = solve_shrunk(within, shrinkage, mean_square, means.T).T
        except np.linalg.LinAlgError:
            raise InputError("the sums fit no features: their covariance is singular even when shrunk") from None
        bias = -0.5 * (weights * means).sum(axis=1)
    if not all(np.isfinite(found).all() for found in (weights, bias)):
        raise InputError("the sums are too large or too small for class scores: they do not stay finite")
    return LinearHead(weights, bias)


def moments(of: ClassSums) -> tuple[Floats, Floats, float]:
    """Return the class means, the pooled covariance within the classes, and the features' mean square.

    A class nobody has gets the mean of all.
    """
    counts = finite_array("class counts", of.counts, ndim=1)
    sums = finite_array("class feature sums", of.sums, ndim=2)
    total_scatter = finite_array("feature scatter", of.scatter, ndim=2)
    classes, dimensions = sums.shape
    if counts.shape != (classes,) or total_scatter.shape != (dimensions, dimensions):
        raise InputError(
            f"the sums do not fit together: {counts.shape} counts, {sums.shape} class sums, "
            f"{total_scatter.shape} scatter"
        )
    if (counts < 0).any() or not counts.any():
        raise InputError("class counts must not be negative, and some class must have samples")
    with np.errstate(all="ignore"):
        n = counts.sum()
        mean = sums.sum(axis=0) / n
        means = np.where(counts[:, None] > 0, sums / np.maximum(counts[:, None], 1.0), mean)
        within = (total_scatter - (means.T * counts) @ means) / n
        mean_square = float(np.trace(total_scatter)) / n
    if not np.isfinite(n):
        raise InputError("the sums are too large or too small for class scores: they do not stay finite")
    return means, within, mean_square


def solve_shrunk(covariance: Floats, shrinkage: float, mean_square: float, right: Floats) -> Floats:
    """Return C^-1 ``right`` for the shrunk covariance C, never singular; ``mean_square`` is of whole features."""
    return np.asarray(np.linalg.solve(shrunk(covariance, shrinkage, mean_square), right), dtype=np.float64)


def shrunk(covariance: Floats, shrinkage: float, mean_square: float) -> Floats:
    """Return (1 - r) C + r (tr C / d) I, symmetric and never singular."""
    floor = spread(covariance, mean_square)
    found = (1 - shrinkage) * covariance + max(shrinkage, _RIDGE) * floor * np.eye(len(covariance))
    return np.asarray((found + found.T) / 2)


def spread(covariance: Floats, mean_square: float) -> float:
    """Return the mean variance of a feature, never zero: what shrinkage pulls a covariance towards."""
    variance = max(float(np.trace(covariance)), _LEAST_VARIANCE * mean_square) / len(covariance)
    return variance if variance > 0 else 1.0  # 1: all features are the same number


def shares(counts: Floats, towards: Floats | None = None, mix: float = 0.0) -> Floats:
    """Return log shares of the classes, mixed with a little of another population's so that no class is impossible."""
    counts = finite_array("class counts", counts, ndim=1)
    with np.errstate(over="ignore"):
        total = counts.sum()
    if not np.isfinite(total):
        raise InputError("class counts are too large to add up")
    share = counts / total if total > 0 else np.full(len(counts), 1.0 / len(counts))
    if towards is not None:
        share = (1 - mix) * share + mix * np.exp(towards)
    return np.asarray(np.log(np.maximum(share, 1e-12)))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Everyone's class means and covariance in the covariance's own directions: scores for any shrinkage at once."""

    directions: Floats
    """(dimensions, dimensions): a column for each direction."""
    variances: Floats
    """(dimensions,) in these directions, without shrinkage."""
    floor: float
    """What shrinkage pulls the variances towards."""
    means: Floats
    """(classes, dimensions) class means in these directions."""

    @classmethod
    def of(cls, sums: ClassSums) -> Spectrum:
        """Return the spectrum of class sums."""
        means, within, mean_square = moments(sums)
        variances, directions = np.linalg.eigh((within + within.T) / 2)
        floor = spread(within, mean_square)
        return cls(directions, np.maximum(variances, 0.0), floor, means @ directions)

    @classmethod
    def of_everyone(cls, everyone: Summary) -> Spectrum:
        """Return the spectrum of everyone's sums, distorted copies included; the last one is remembered."""
        sums = with_copies(everyone.class_sums(PLAIN), everyone.class_sums(DISTORTED))
        key = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in sums)).digest()
        if key not in _LAST_SPECTRUM:
            found = cls.of(sums)
            _LAST_SPECTRUM.clear()
            _LAST_SPECTRUM[key] = found
        return _LAST_SPECTRUM[key]

    def rotate(self, features: Floats) -> Floats:
        """Return (samples, dimensions) features in these directions."""
        return np.asarray(features @ self.directions)

    def shrunk(self, shrinkage: float) -> Floats:
        """Return the (dimensions,) shrunk variances."""
        return (1 - shrinkage) * self.variances + max(shrinkage, _RIDGE) * self.floor

    def scores(self, rotated: Floats, shrinkage: float) -> Floats:
        """Return (samples, classes) scores s_k of rotated features."""
        weights = self.means / self.shrunk(shrinkage)
        return np.asarray(rotated @ weights.T - 0.5 * (weights * self.means).sum(axis=1))

    def effective_dimensions(self, shrinkage: float) -> float:
        """Return how many directions of equal variance would vary as much, once whitened by the shrunk covariance."""
        whitened = self.variances / self.shrunk(shrinkage)
        total = float(whitened.sum())
        return max(total * total / max(float((whitened**2).sum()), 1e-300), 1.0)


_LAST_SPECTRUM: dict[bytes, Spectrum] = {}
