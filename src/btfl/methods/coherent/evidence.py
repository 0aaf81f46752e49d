"""What one sample says: its log likelihood ratio, internal against external.

``label`` is the method's own: exact where the client and the rest of the world differ in how often each class occurs.
Where clients have class means of their own as well, the method compares two densities instead. The others are
ablations. To try another one, write a class and enter it in ``EVIDENCES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from btfl.core.arithmetic import Arithmetic
from btfl.core.bundle import ClientBundle
from btfl.core.generative import everyones_sums
from btfl.core.likelihood import LikelihoodPair
from btfl.methods.coherent.discriminant import discriminant

if TYPE_CHECKING:
    from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]


class Evidence(Protocol):
    """What one sample says."""

    single: bool
    """Whether it can read a sample that comes alone."""

    def log_tau(self, xp: Arithmetic, features: Floats, with_ratios: Any, totals: Any) -> Any:
        """Return the log ratio from features and the generative head's softmax, w / S.

        Parameters
        ----------
        with_ratios : the sum of w times the share ratios
        totals : S
        """


class LabelShift:
    """The exact ratio under label shift.

    The ratio of two mixtures of the same classes is the mean of their share ratios under one's posterior.
    """

    single = True

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        pass

    def log_tau(self, xp: Arithmetic, features: Floats, with_ratios: Any, totals: Any) -> Any:
        """Return the log ratio."""
        return xp.log(with_ratios / totals)


class Discriminant:
    """A line between the client's features and the others' (ablation)."""

    single = False

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        own, sums = bundle.statistic("train_features"), everyones_sums(bundle)
        total = sums.counts.sum()
        self._weight, self._offset = discriminant(
            own, total, sums.sums.sum(axis=0), sums.scatter, settings.chosen(bundle).shrinkage
        )

    def log_tau(self, xp: Arithmetic, features: Floats, with_ratios: Any, totals: Any) -> Any:
        """Return the log ratio."""
        return features @ self._weight + self._offset


class LabelAndDiscriminant:
    """The mean of both (ablation)."""

    single = False

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        self._label = LabelShift(bundle, settings)
        self._line = Discriminant(bundle, settings)

    def log_tau(self, xp: Arithmetic, features: Floats, with_ratios: Any, totals: Any) -> Any:
        """Return the log ratio."""
        linear = self._line.log_tau(xp, features, with_ratios, totals)
        return (linear + self._label.log_tau(xp, features, with_ratios, totals)) / 2


class QuantisedFeatures:
    """The paper's likelihood ratio of quantised features (ablation)."""

    single = False

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings) -> None:
        self._likelihoods = LikelihoodPair(bundle.local_likelihood, bundle.global_likelihood)

    def log_tau(self, xp: Arithmetic, features: Floats, with_ratios: Any, totals: Any) -> Any:
        """Return the log ratio."""
        log_q_local, log_q_global = self._likelihoods.log_q(features)
        return log_q_local - log_q_global


EVIDENCES: Mapping[str, Callable[[ClientBundle, CoherentSettings], Evidence]] = {
    "label": LabelShift,
    "discriminant": Discriminant,
    "both": LabelAndDiscriminant,
    "likelihood": QuantisedFeatures,
}
