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

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.methods.coherent.metric import Metric
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.state import count

Floats = NDArray[np.float64]
CARRIED = "strangeness"
"""Among a bundle's metadata: what is typical of the client, found where its features were at hand."""
FEWEST = 50
"""With fewer validation samples, training samples say what is typical, or whatever there is."""
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
        self.metric = Metric(bundle, CoherentSettings() if settings is None else settings)
        self._bundle = bundle
        self._typical: Floats
        self.own: Floats
        """The strangeness of the client's own samples, in ascending order."""
        self.unlabelled: Floats
        """(dimensions,) The mean of what ``Metric.unlabelled`` sees of the client's own validation samples. 0, which is
        everyone's, where they are fewer than ``FEWEST``: samples that were trained on look different."""
        self.averaged: int
        """Samples in that mean."""
        if (carried := bundle.metadata.get(CARRIED)) is None:
            self._look_at_own()
        else:
            self._typical, self.own, self.unlabelled, self.averaged = _read(carried, bundle.dimensions)

    def of(self, features: ArrayLike) -> Floats:
        """Return the strangeness (samples,) of (samples, dimensions) features."""
        z = as_features(features, width=self._bundle.dimensions)
        return self.of_white(z, self.metric.white(z))

    def of_white(self, features: Floats, white: Floats) -> Floats:
        """Return the same where the features are at hand as ``Metric.white`` has them, too."""
        mean, unit = self._typical
        return np.asarray((_off(self._looked_at(features, white) - mean) / unit).max(axis=1))

    def level(self, false_alarms: float = 0.01) -> float:
        """Return the strangeness that so large a share of the client's own samples exceed, at most.

        It is the conformal quantile of its own validation samples: new samples of the same kind exceed it that often.
        With fewer of them than 1/false_alarms it is the largest that was seen, and the promise is not kept.
        """
        return conformal_level(self.own, false_alarms)

    def carried_by(self, bundle: ClientBundle) -> ClientBundle:
        """Return a bundle that says what is typical of the client, so that it can do without features."""
        told = {
            "typical": self._typical.tolist(),
            "own": np.round(self.own, 4).tolist(),
            "unlabelled": self.unlabelled.tolist(),
            "averaged": self.averaged,
        }
        fields = {name: getattr(bundle, name) for name in ("local_entropy", "global_entropy", "statistics")}
        heads = bundle.global_head, bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood
        return ClientBundle(*heads, **fields, metadata={**bundle.metadata, CARRIED: told})

    def _looked_at(self, z: Floats, white: Floats) -> Floats:
        """Return (samples, 2): log of the distance to the nearest class mean, and the energy."""
        nearest = self.metric.nearest(white)
        energy = -np.logaddexp.reduce(self._bundle.global_head.logits(z), axis=1)
        return np.stack([np.log(np.maximum(nearest, _SMALLEST)), energy], axis=1)

    def _look_at_own(self) -> None:
        parts = [self._bundle.statistics.get(f"{part}_features") for part in ("validation", "train")]
        known = [part for part in parts if part is not None and len(part)]
        if not known:
            raise InputError(
                "strangeness needs validation or training features in the bundle, or what Strangeness(...).carried_by "
                "put into a bundle without them"
            )
        chosen = next((part for part in known if len(part) >= FEWEST), max(known, key=len))
        features = np.asarray(chosen, dtype=np.float64)
        white = self.metric.white(features)
        looked_at = self._looked_at(features, white)
        mean = looked_at.mean(axis=0)
        unit = np.quantile(_off(looked_at - mean), 1 - _RARE, axis=0)
        self._typical = np.stack([mean, np.where(unit > _SMALLEST, unit, 1.0)])  # one sample says nothing of the spread
        self.own = np.sort(self.of_white(features, white))
        held_out = chosen is parts[0] and len(chosen) >= FEWEST
        self.unlabelled = self.metric.unlabelled(white).mean(axis=0) if held_out else np.zeros(white.shape[1])
        self.averaged = len(chosen) if held_out else 0


def conformal_level(own: Floats, false_alarms: float) -> float:
    """Return the level that at most this share of new samples exceed, from scores of own ones in ascending order."""
    if not 0 < false_alarms < 1:
        raise InputError(f"false alarms are a share between 0 and 1, not {false_alarms}")
    place = int(np.ceil((len(own) + 1) * (1 - false_alarms))) - 1
    return float(own[min(place, len(own) - 1)])


def _off(difference: Floats) -> Floats:
    """Return (samples, 2): a distance is strange on both sides of its mean, an energy above it."""
    return np.stack([np.abs(difference[:, 0]), difference[:, 1]], axis=1)


def _read(carried: Any, dimensions: int) -> tuple[Floats, Floats, Floats, int]:
    try:
        typical, own = (np.asarray(carried[name], dtype=np.float64) for name in ("typical", "own"))
        # bundles of 0.2.0 have none: everyone's mean stands in its place, which is 0
        unlabelled = np.asarray(carried.get("unlabelled", np.zeros(dimensions)), dtype=np.float64)
        averaged = count("averaged", carried.get("averaged", 0))
    except (AttributeError, TypeError, KeyError, ValueError):
        raise InputError(f"{CARRIED} in the bundle's metadata has 'typical' and 'own', lists of numbers") from None
    if (
        typical.shape != (2, 2)
        or own.ndim != 1
        or not len(own)
        or not np.isfinite(own).all()
        or (typical[1] <= 0).any()
        or unlabelled.shape != (dimensions,)
        or not np.isfinite(unlabelled).all()
    ):
        raise InputError(f"{CARRIED} in the bundle's metadata fits no samples")
    return typical, np.sort(own), unlabelled, averaged
