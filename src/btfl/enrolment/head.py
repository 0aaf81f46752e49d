"""A personal head for a new device: logistic regression on its own features, held to what is known already.

With weights W, a column of ones for the bias, and the head W_0 that it is held to, it minimises

    sum over samples of -log softmax(W z)_y  +  strength/2 (m^2 |W - W_0|^2 + |b - b_0|^2),        m^2 = mean |z|^2,

which has one minimum. The strength is the one of ``STRENGTHS`` under which samples that were left out are likeliest.
An infinite one is W_0 itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy  # loads scipy.optimize when it is first used
from numpy.typing import NDArray

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

STRENGTHS = (math.inf, 100.0, 10.0, 1.0, 0.1, 0.01)
"""From the strongest; of equally good ones the stronger is taken."""
FOLDS = 5
_MOST_STEPS = 200


def fit_head(features: Floats, labels: Labels, centre: LinearHead, strength: float, scale: float) -> LinearHead:
    """Return the head that fits the samples and stays near a centre.

    Parameters
    ----------
    features : (samples, dimensions)
    labels : (samples,)
    centre : what it is held to
    strength : how strongly; infinite: the centre itself
    scale : m, the root of the features' mean square length
    """
    start = _flat(centre)
    if math.isinf(strength) or len(labels) == 0:
        return LinearHead(start[:, :-1], start[:, -1])
    shape, rows = start.shape, np.arange(len(labels))
    extended = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    weights = strength * np.concatenate([np.full(shape[1] - 1, scale**2), [1.0]])

    def loss(flat: Floats) -> tuple[float, Floats]:
        moved = flat.reshape(shape)
        log_p = log_softmax(extended @ (start + moved).T)
        slope = np.exp(log_p)
        slope[rows, labels] -= 1.0
        value = -float(log_p[rows, labels].sum()) + 0.5 * float((weights * moved**2).sum())
        return value, (slope.T @ extended + weights * moved).ravel()

    found = scipy.optimize.minimize(
        loss, np.zeros(start.size), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    fitted = start + found.x.reshape(shape)
    return LinearHead(fitted[:, :-1], fitted[:, -1])


def fit_by_likelihood(
    features: Floats,
    labels: Labels,
    centre: LinearHead,
    scale: float,
    validation: tuple[Floats, Labels] | None = None,
    strengths: Sequence[float] = STRENGTHS,
) -> tuple[LinearHead, float]:
    """Return the head, and the strength that was chosen: by validation samples, or by leaving out a part in turn.

    Parameters
    ----------
    features, labels, centre, scale : of ``fit_head``
    validation : features and labels of other samples of the device
    strengths : to choose from, the strongest first
    """
    if validation is not None and len(validation[1]):
        splits = [(features, labels, *validation)]
    elif len(labels) > 1:
        fold = np.arange(len(labels)) % min(FOLDS, len(labels))
        splits = [
            (features[fold != part], labels[fold != part], features[fold == part], labels[fold == part])
            for part in range(int(fold.max()) + 1)
        ]
    else:
        return fit_head(features, labels, centre, math.inf, scale), math.inf

    def likelihood(strength: float) -> float:
        return sum(
            _log_likelihood(fit_head(z, y, centre, strength, scale), others, theirs) for z, y, others, theirs in splits
        )

    values = [round(likelihood(strength), 9) for strength in strengths]
    chosen = strengths[int(np.argmax(values))]
    return fit_head(features, labels, centre, chosen, scale), chosen


def _log_likelihood(head: LinearHead, features: Floats, labels: Labels) -> float:
    return float(log_softmax(head.logits(features))[np.arange(len(labels)), labels].sum())


def _flat(head: LinearHead) -> Floats:
    bias = np.zeros(head.classes) if head.bias is None else head.bias
    return np.concatenate([head.weight, bias[:, None]], axis=1)
