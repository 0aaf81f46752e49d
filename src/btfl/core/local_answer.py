"""A local answer with settings of its own, and with class means and a covariance between the client's and everyone's.

It has a shrinkage r and a temperature T of its own where these are clearly more likely than the global answer's
(``core.calibration``). Where clients differ in what a class looks like, they differ in how it varies, too. With n own
samples, scattered by S around their class means, and everyone's V shrunk by r, the client's covariance is the mean of
an inverse Wishart posterior, everyone's being worth nu samples:

    V_l = (S + nu V) / (n + nu),       mu_l = mu + (m - mu) n_k / (n_k + kappa)

and the local answer is softmax((log personal + s_l / T + log pi_l) / T_l), with the linear scores s_l of these
Gaussians: still one linear head. All five numbers are chosen together by the clients' summed validation likelihood,
over a grid of 1,200 points; each client uploads one number a point (``core.calibration``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from btfl.core.generative import OPENNESS, moments, shares, shrunk
from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.core.sums import ClassSums
from btfl.errors import InputError

Floats = NDArray[np.float64]

SHRINKAGES = (0.01, 0.1)
PRIOR_SAMPLES = (math.inf, 400.0, 100.0, 25.0, 6.0)
INVERSE_KAPPAS = (0.1, 0.3, 1.0, 3.0)
TEMPERATURES = (1.5, 3.0, 6.0, 12.0, 24.0)
LOCAL_TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
GRID = tuple(map(len, (SHRINKAGES, PRIOR_SAMPLES, INVERSE_KAPPAS, TEMPERATURES, LOCAL_TEMPERATURES)))


class LocalAnswer(NamedTuple):
    """What the local answer is made with."""

    shrinkage: float
    """r of everyone's covariance."""
    prior_samples: float
    """nu: how many own samples everyone's covariance is worth; infinite: the client has none of its own."""
    inverse_kappa: float
    """1/kappa of the class means."""
    temperature: float
    """T of the scores."""
    local_temperature: float
    """T_l of the whole answer."""

    @property
    def has_own_covariance(self) -> bool:
        """Whether the client's own scatter is needed to make it."""
        return not math.isinf(self.prior_samples)

    @classmethod
    def at(cls, place: tuple[int, ...]) -> LocalAnswer:
        """Return the point of the grid with these indices."""
        r, nu, kappa, t, sharper = place
        return cls(
            SHRINKAGES[r], PRIOR_SAMPLES[nu], INVERSE_KAPPAS[kappa], TEMPERATURES[t], LOCAL_TEMPERATURES[sharper]
        )


class Everyone(NamedTuple):
    """What everyone's sums say, for any answer."""

    plain: ClassSums
    means: Floats
    """(classes, dimensions), distorted copies included."""
    within: Floats
    """(dimensions, dimensions), distorted copies included."""
    mean_square: float

    @classmethod
    def of(cls, plain: ClassSums, with_copies: ClassSums) -> Everyone:
        """Take apart the sums over samples as they are, and those over samples and distorted copies together."""
        return cls(plain, *moments(with_copies))


def own_offsets(counts: Floats, sums: Floats, everyone: ClassSums, inverse_kappa: float) -> Floats:
    """Return how far a client's class means are from everyone's, (classes, dimensions), by empirical Bayes.

    The client's mean of class k is drawn around everyone's, with the variance within a class over kappa. With n samples
    of its own, of mean m, its expected offset is (m - mu) n / (n + kappa).

    Parameters
    ----------
    counts, sums : (classes,) and (classes, dimensions) of the client's own samples
    everyone : everyone's sums over samples as they are
    inverse_kappa : 1/kappa; 0 gives zeros
    """
    means = everyone.sums / np.maximum(everyone.counts, 1.0)[:, None]
    trust = inverse_kappa / (1.0 + inverse_kappa * counts)
    return np.asarray(trust[:, None] * (sums - counts[:, None] * means))


def own_scores(own: ClassSums, everyone: Everyone, answer: LocalAnswer) -> LinearHead:
    """Return the scores of a client's own Gaussians, without label shares, as a linear head."""
    weights, bias = _scores(own, everyone, answer.shrinkage, answer.prior_samples, (answer.inverse_kappa,))
    return LinearHead(weights[0], bias[0])


def own_likelihoods(
    own: ClassSums,
    everyone: Everyone,
    personal: Floats,
    features: Floats,
    labels: NDArray[np.int64],
    add: Callable[[Floats], Floats],
) -> Floats:
    """Return the log likelihood of a client's validation labels at every point of the grid.

    Parameters
    ----------
    own : sums over the client's training samples as they are
    personal : (samples, classes) log probabilities by its personal head
    features, labels : (samples, dimensions) and (samples,) of its validation samples
    add : how the samples' log likelihoods are added up, along the last axis
    """
    log_own = shares(own.counts, shares(everyone.plain.counts), OPENNESS)
    rows = np.arange(len(features))
    temperatures = np.array(TEMPERATURES)[:, None, None]
    sharper = np.array(LOCAL_TEMPERATURES)[:, None, None]
    found = np.empty(GRID)
    for i, r in enumerate(SHRINKAGES):
        for j, nu in enumerate(PRIOR_SAMPLES):
            weights, bias = _scores(own, everyone, r, nu, INVERSE_KAPPAS)
            for k in range(len(INVERSE_KAPPAS)):
                scores = features @ weights[k].T + bias[k]
                local = personal + scores / temperatures + log_own
                found[i, j, k] = add(log_softmax(local[:, None] / sharper)[..., rows, labels])
    return found


def _scores(
    own: ClassSums, everyone: Everyone, shrinkage: float, prior_samples: float, inverse_kappas: tuple[float, ...]
) -> tuple[Floats, Floats]:
    """Return weights (kappas, classes, dimensions) and biases (kappas, classes), by solving for all kappas at once."""
    with np.errstate(all="ignore"):  # what overflows is refused below
        means = np.stack(
            [everyone.means + own_offsets(own.counts, own.sums, everyone.plain, k) for k in inverse_kappas]
        )
        covariance = _covariance(own, shrunk(everyone.within, shrinkage, everyone.mean_square), prior_samples)
        try:
            solved = np.linalg.solve(covariance, means.reshape(-1, means.shape[-1]).T)
        except np.linalg.LinAlgError:
            raise InputError("the client's own sums fit no features: their covariance is singular") from None
        weights = np.ascontiguousarray(solved.T).reshape(means.shape)
        bias = -0.5 * (weights * means).sum(axis=2)
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise InputError("the client's own sums are too large or too small for class scores: they do not stay finite")
    return weights, bias


def _covariance(own: ClassSums, everyones: Floats, prior_samples: float) -> Floats:
    """Return the client's covariance within its classes: its own scatter, everyone's covariance being worth so much."""
    if math.isinf(prior_samples):
        return everyones
    has = own.counts > 0
    roots = own.sums[has] / np.sqrt(own.counts[has, None])
    scatter = own.scatter - roots.T @ roots
    freedom = max(float(own.counts.sum() - has.sum()), 0.0)
    found = ((scatter + scatter.T) / 2 + prior_samples * everyones) / (freedom + prior_samples)
    return np.asarray(found)
