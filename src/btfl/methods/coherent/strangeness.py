"""Neither internal nor external: how little a sample resembles anything that was trained on.

Two numbers are looked at, both from statistics that Coherent has anyway: the log of the squared Mahalanobis distance
to the nearest class mean, D, under everyone's covariance; and the energy of the global head, E, the negative log of the
sum of its exponentiated logits. Strangeness is how far they are off their means on the client's own samples, in units
of what one in a hundred of these is off by,

    max(|log D - mean| / unit, (E - mean) / unit),

so that each of the two raises as many false alarms. A distance is strange on both sides: in many dimensions samples
lie on a shell, and a black frame lies inside it, nearer to a class than any sample ever is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.generative import everyones_sums, moments, shrunk
from btfl.errors import InputError
from btfl.methods.base import Client, Column
from btfl.methods.card import PINK, Card
from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]
CARRIED = "strangeness"
"""Among a bundle's metadata: what is typical of the client, found where its features were at hand."""
FEWEST = 20
"""Own samples that say what is typical."""
_RARE = 0.01  # the share of own samples that each of the two numbers finds strange, at 1
_SMALLEST = 1e-9  # of a squared distance and of a unit, so that logs and quotients stay finite


class Strangeness:
    """Scores samples by how strange they are; about one in fifty of the client's own samples is above 1.

    Parameters
    ----------
    bundle : the client's. Its validation features, or else its training features, say what is typical; a bundle without
        features needs what ``carried_by`` put into its metadata
    settings : Coherent's, for the shrinkage of the covariance and the weight of distorted copies

    Examples
    --------
    >>> strangeness = Strangeness(bundle)                                                 # doctest: +SKIP
    >>> strangeness.of(features) > strangeness.level(false_alarms=0.01)                   # doctest: +SKIP
    """

    def __init__(self, bundle: ClientBundle, settings: CoherentSettings | None = None) -> None:
        settings = CoherentSettings() if settings is None else settings
        sums = everyones_sums(bundle, settings.distorted)
        means, within, mean_square = moments(sums)
        root = np.linalg.cholesky(shrunk(within, settings.chosen(bundle).shrinkage, mean_square))
        self._whitening = solve_triangular(root, np.eye(len(root)), lower=True).T
        self._means = means[sums.counts > 0] @ self._whitening
        self._lengths = (self._means**2).sum(axis=1)
        self._bundle = bundle
        self._typical, self.own = self._found() if (carried := bundle.metadata.get(CARRIED)) is None else _read(carried)

    def of(self, features: ArrayLike) -> Floats:
        """Return the strangeness (samples,) of (samples, dimensions) features."""
        mean, unit = self._typical
        looked_at = self._looked_at(as_features(features, width=self._bundle.dimensions))
        return np.asarray((_off(looked_at - mean) / unit).max(axis=1))

    def level(self, false_alarms: float = 0.01) -> float:
        """Return the strangeness that so large a share of the client's own samples exceed, at most.

        It is the conformal quantile of its own validation samples: new samples of the same kind exceed it that often.
        With fewer of them than 1/false_alarms it is the largest that was seen, and the promise is not kept.
        """
        if not 0 < false_alarms < 1:
            raise InputError(f"false alarms are a share between 0 and 1, not {false_alarms}")
        place = int(np.ceil((len(self.own) + 1) * (1 - false_alarms))) - 1
        return float(self.own[min(place, len(self.own) - 1)])

    def carried_by(self, bundle: ClientBundle) -> ClientBundle:
        """Return a bundle that says what is typical of the client, so that it can do without features."""
        told = {"typical": self._typical.tolist(), "own": np.round(self.own, 4).tolist()}
        fields = {name: getattr(bundle, name) for name in ("local_entropy", "global_entropy", "statistics")}
        heads = bundle.global_head, bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood
        return ClientBundle(*heads, **fields, metadata={**bundle.metadata, CARRIED: told})

    def _looked_at(self, z: Floats) -> Floats:
        """Return (samples, 2): log of the distance to the nearest class mean, and the energy."""
        white = z @ self._whitening
        nearest = (white**2).sum(axis=1) + (self._lengths - 2 * white @ self._means.T).min(axis=1)
        energy = -np.logaddexp.reduce(self._bundle.global_head.logits(z), axis=1)
        return np.stack([np.log(np.maximum(nearest, _SMALLEST)), energy], axis=1)

    def _found(self) -> tuple[Floats, Floats]:
        for part in ("validation", "train"):
            features = self._bundle.statistics.get(f"{part}_features")
            if features is not None and len(features) >= FEWEST:
                looked_at = self._looked_at(np.asarray(features, dtype=np.float64))
                mean = looked_at.mean(axis=0)
                unit = np.quantile(_off(looked_at - mean), 1 - _RARE, axis=0)
                self._typical = np.stack([mean, np.maximum(unit, _SMALLEST)])
                return self._typical, np.sort(self.of(features))
        raise InputError(
            f"strangeness needs at least {FEWEST} validation or training features in the bundle, or what "
            "Strangeness(...).carried_by put into a bundle without them"
        )


def _off(difference: Floats) -> Floats:
    """Return (samples, 2): a distance is strange on both sides of its mean, an energy above it."""
    return np.stack([np.abs(difference[:, 0]), difference[:, 1]], axis=1)


def _read(carried: Any) -> tuple[Floats, Floats]:
    try:
        typical, own = (np.asarray(carried[name], dtype=np.float64) for name in ("typical", "own"))
    except (TypeError, KeyError, ValueError):
        raise InputError(f"{CARRIED} in the bundle's metadata has 'typical' and 'own', lists of numbers") from None
    if (
        typical.shape != (2, 2)
        or own.ndim != 1
        or not len(own)
        or not np.isfinite(own).all()
        or (typical[1] <= 0).any()
    ):
        raise InputError(f"{CARRIED} in the bundle's metadata fits no samples")
    return typical, np.sort(own)


class WatchfulCoherent(Coherent):
    """Coherent with ``strangeness`` in its trace: a ``Monitor`` alarms at what is neither internal nor external.

    The answer is Coherent's own, to the bit: what is strange is still answered, and never silently. A sample costs one
    product with a (dimensions, dimensions) matrix more.

    Examples
    --------
    >>> method = WatchfulCoherent(bundle)                                                 # doctest: +SKIP
    >>> monitor = Monitor(levels_for(method, bundle), on_alarm=print)                     # doctest: +SKIP
    >>> method.predict(features), monitor.watch(method.trace)                             # doctest: +SKIP
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "coherent-watchful",
            "Coherent, watchful (ours)",
            "Coherent, with strangeness in its trace",
            "ours, not the paper's (docs/method.md)",
            PINK,
            "8",
        ),
    )
    columns: ClassVar[Mapping[str, Column]] = {
        **Coherent.columns,
        "strangeness": Column("how little the sample resembles anything; about 2 % of the client's own are above 1"),
    }
    exportable: ClassVar[bool] = False

    def __init__(self, client: Client | ClientBundle, settings: CoherentSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self.strangeness = Strangeness(self.bundle, self.settings)

    def predict(self, batch: ArrayLike) -> Floats:
        """Return Coherent's answer, and keep how strange each sample is for the trace."""
        answer = super().predict(batch)
        assert self.found is not None
        self.found = (*self.found, self.strangeness.of(batch))
        return answer
