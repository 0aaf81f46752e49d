"""What streams of a client's own are drawn from: its validation features, or the best there is in their place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.generative import everyones_sums
from btfl.errors import InputError
from btfl.knobs import Settings
from btfl.methods.coherent.settings import CoherentSettings
from btfl.randomness import generator

Floats = NDArray[np.float64]
FEWEST = 50
"""Own samples that say something of how a stream of them looks."""


@dataclass(frozen=True)
class Own:
    """Features of a client's own to draw streams from."""

    features: Floats
    source: str
    samples: int


def own_features(bundle: ClientBundle, settings: Settings | None = None, seed: int = 0) -> Own:
    """Return the best a bundle has: validation features, else training features, else samples of its Gaussians.

    ``settings`` are the method's: Gaussians are drawn as the method itself believes in them, with its ``temperature``
    (the covariance is so much wider) and its share of ``distorted`` copies.
    """
    for part in ("validation", "train"):
        found = bundle.statistics.get(f"{part}_features")
        if found is not None and len(found) >= FEWEST:
            return Own(np.asarray(found, dtype=np.float64), {"train": "training"}.get(part, part), len(found))
    chosen = settings.chosen(bundle) if isinstance(settings, CoherentSettings) else settings  # what the data have set
    wider = float(getattr(chosen, "temperature", None) or 1.0)
    distorted = float(getattr(settings, "distorted", None) or 0.0)
    return Own(_from_sums(bundle, generator(seed, "own features from sums"), 1000, wider, distorted), "sums", 0)


def _from_sums(bundle: ClientBundle, rng: np.random.Generator, samples: int, wider: float, distorted: float) -> Floats:
    """Draw from the client's own mixture of classes, each a Gaussian with everyone's mean and covariance."""
    bundle.require("local_class_counts", by="a monitor without features of the client's own")
    sums, own = everyones_sums(bundle, distorted), np.asarray(bundle.statistics["local_class_counts"], dtype=np.float64)
    has = (sums.counts > 0) & (own > 0)
    if not has.any():
        raise InputError("the client's own class counts are all zero: there is nothing to draw own streams from")
    means = sums.sums / np.maximum(sums.counts, 1.0)[:, None]
    within = wider * (sums.scatter - (means.T * sums.counts) @ means) / sums.counts.sum()
    size, directions = np.linalg.eigh((within + within.T) / 2)
    labels = rng.choice(len(own), samples, p=np.where(has, own, 0.0) / own[has].sum())
    noise = rng.normal(size=(samples, len(size))) * np.sqrt(np.maximum(size, 0.0))
    drawn: Floats = means[labels] + noise @ directions.T
    # features after a ReLU are never negative; where everyone's are not, neither are these
    return np.maximum(drawn, 0.0) if (sums.sums >= 0).all() else drawn
