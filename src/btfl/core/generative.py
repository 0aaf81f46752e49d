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

import numpy as np
from numpy.typing import NDArray

from btfl.checks import finite_array
from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.core.summary import DISTORTED, PLAIN, ClassSums
from btfl.errors import InputError

Floats = NDArray[np.float64]

_LEAST_VARIANCE = 1e-6  # of the features' mean square, where there is no variance at all
_RIDGE = 1e-9  # of the variance, even without shrinkage: dead features must not make the covariance singular


_NAMES = ("class_counts", "class_feature_sums", "feature_scatter")
NEEDED = tuple(f"global_{name}" for name in _NAMES)
"""The bundle's statistics that everyone's sums are read from."""
OPTIONAL = tuple(f"global_{DISTORTED}{name}" for name in _NAMES)
"""The same over distorted copies, where there are any."""


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
    return ClassSums(*(array + distorted * copy for array, copy in zip(plain, copies, strict=True)))


def _sums(bundle: ClientBundle, kind: str) -> ClassSums:
    names = [f"global_{kind}{name}" for name in _NAMES]
    bundle.require(*names, by="a generative head")
    return ClassSums(*(np.asarray(bundle.statistics[name], dtype=np.float64) for name in names))


def class_scores(of: ClassSums, shrinkage: float) -> LinearHead:
    """Return the scores s_k as a linear head; a class nobody has is scored as the mean of all.

    Parameters
    ----------
    of : counts (classes,), feature sums (classes, dimensions) and scatter (dimensions, dimensions)
    shrinkage : r, from 0 to 1
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
    if not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage is a share from 0 to 1, not {shrinkage}")
    with np.errstate(all="ignore"):  # what overflows is refused below
        n = counts.sum()
        mean = sums.sum(axis=0) / n
        means = np.where(counts[:, None] > 0, sums / np.maximum(counts[:, None], 1.0), mean)
        within = (total_scatter - (means.T * counts) @ means) / n
        try:
            weights = solve_shrunk(within, shrinkage, float(np.trace(total_scatter)) / n, means.T).T
        except np.linalg.LinAlgError:
            raise InputError("the sums fit no features: their covariance is singular even when shrunk") from None
        bias = -0.5 * (weights * means).sum(axis=1)
    if not all(np.isfinite(found).all() for found in (n, weights, bias)):
        raise InputError("the sums are too large or too small for class scores: they do not stay finite")
    return LinearHead(weights, bias)


def solve_shrunk(covariance: Floats, shrinkage: float, mean_square: float, right: Floats) -> Floats:
    """Return C^-1 ``right`` for the shrunk covariance C, never singular; ``mean_square`` is of whole features."""
    dimensions = len(covariance)
    variance = max(float(np.trace(covariance)), _LEAST_VARIANCE * mean_square) / dimensions
    floor = variance if variance > 0 else 1.0  # all features are the same number
    shrunk = (1 - shrinkage) * covariance + max(shrinkage, _RIDGE) * floor * np.eye(dimensions)
    return np.asarray(np.linalg.solve((shrunk + shrunk.T) / 2, right), dtype=np.float64)


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
