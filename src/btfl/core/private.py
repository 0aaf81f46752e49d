"""A total over clients with differential privacy: what is released of it, how much one sample can change that, and what
is made of the noisy sums so that they are sums again.

Features are clipped to a radius R that is known beforehand. One sample then changes each of these parts by at most 1,
in the Euclidean norm, whatever it is:

    n_k,    s_k / R,    S / R^2,    o / sqrt(d)        (o: in how many samples each of d features is off)

so that all four together change by at most sqrt(4), and the first three alone by sqrt(3). With one distorted copy of
each sample, its s_k / R and S / R^2 are two parts more; its n_k are those of the samples and are not released again:
sqrt(6). Where the guarantee is for a whole client, each client's parts are shortened together to a length B, and change
the total by at most that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.core.summary import Summary
from btfl.core.sums import DISTORTED, PLAIN
from btfl.errors import InputError

Floats = NDArray[np.float64]
Parts = dict[str, Floats]

COUNTS, OFF = "class_counts", "zero_frequencies"
SUMS, SCATTER = "class_feature_sums", "feature_scatter"
_FEWEST = 1.0  # samples of a class, where noise leaves fewer


def clip_features(features: Floats, radius: float) -> Floats:
    """Return (samples, dimensions) features, those longer than the radius shortened to it."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features * np.minimum(1.0, radius / np.maximum(lengths, 1e-300)))


def default_radius(dimensions: int) -> float:
    """Return 2 sqrt(d): the length of features whose root mean square is 2. It depends on the model alone."""
    return 2.0 * math.sqrt(dimensions)


@dataclass(frozen=True)
class Clipping:
    """The protection of a client that only clips its features; the noise is added to the total."""

    radius: float

    def features(self, features: Floats) -> Floats:
        """Return the features as they are added up."""
        return clip_features(features, self.radius)

    def summary(self, summary: Summary) -> Summary:
        """Return the sums as they are."""
        return summary


@dataclass(frozen=True)
class PrivateSums:
    """How a total is released.

    Parameters
    ----------
    radius : R, to which features are clipped
    multiplier : standard deviation of the noise, in units of the sensitivity
    bound : B, where the guarantee is for a whole client; None: for one sample
    """

    radius: float
    multiplier: float
    bound: float | None = None

    def parts(self, summary: Summary) -> Parts:
        """Return one client's sums in units in which one sample changes each part by at most 1."""
        arrays, radius = summary.arrays, self.radius
        samples = float(arrays["samples"][0])
        found = {COUNTS: arrays[COUNTS], OFF: arrays[OFF] * samples / math.sqrt(summary.dimensions)}
        for kind in (PLAIN, DISTORTED) if summary.has_copies else (PLAIN,):
            found[kind + SUMS] = arrays[kind + SUMS] / radius
            found[kind + SCATTER] = arrays[kind + SCATTER] / radius**2
        return self._shortened({name: np.asarray(array, dtype=np.float64) for name, array in found.items()})

    def _shortened(self, parts: Parts) -> Parts:
        if self.bound is None:
            return parts
        length = math.sqrt(sum(float(np.vdot(array, array)) for array in parts.values()))
        factor = min(1.0, self.bound / max(length, 1e-300))
        return {name: array * factor for name, array in parts.items()}

    def sensitivity(self, parts: Mapping[str, Floats]) -> float:
        """Return how far one sample, or one client, can move the total of these parts: their Euclidean distance."""
        return math.sqrt(len(parts)) if self.bound is None else self.bound

    def noisy(self, total: Parts, rng: np.random.Generator, share: float = 1.0) -> Parts:
        """Return the total with noise.

        A scatter is symmetric: its upper triangle is what is released, each entry off the diagonal standing for two,
        and so it gets noise of half the variance.

        Parameters
        ----------
        share : of the variance, where several add a part of the noise each
        """
        deviation = self.multiplier * self.sensitivity(total) * math.sqrt(share)
        found = {}
        for name in sorted(total):
            noise = rng.normal(0.0, deviation, total[name].shape)
            found[name] = total[name] + ((noise + noise.T) / 2 if name.endswith(SCATTER) else noise)
        return found

    def released(self, noisy: Parts, clients: int) -> Summary:
        """Return noisy parts as sums that test-time methods can work with; nothing of the data is looked at again.

        Counts are at least one; class means are pulled towards the mean of all by as much as noise may have moved them
        (James and Stein); and what is left of the scatter within the classes has no eigenvalue below the noise's own.
        """
        deviation = self.multiplier * self.sensitivity(noisy)
        counts = np.maximum(noisy[COUNTS], _FEWEST)
        dimensions = len(noisy[OFF])
        arrays: dict[str, Floats] = {
            "clients": np.array([float(clients)]),
            "samples": np.array([float(max(round(float(counts.sum())), 1))]),
            OFF: np.clip(noisy[OFF] * math.sqrt(dimensions) / counts.sum(), 0.0, 1.0) * clients,
        }
        for kind in (PLAIN, DISTORTED):
            if kind + SUMS in noisy:
                sums = _shrunk_sums(counts, noisy[kind + SUMS], deviation)
                scatter = _room_for(counts, sums, noisy[kind + SCATTER], deviation)
                arrays |= {
                    kind + COUNTS: counts,
                    kind + SUMS: sums * self.radius,
                    kind + SCATTER: scatter * self.radius**2,
                }
            else:
                arrays |= {
                    kind + name: np.zeros(shape)
                    for name, shape in (
                        (COUNTS, counts.shape),
                        (SUMS, (len(counts), dimensions)),
                        (SCATTER, (dimensions, dimensions)),
                    )
                }
        return Summary.from_arrays(arrays)


def add_parts(total: Parts, parts: Parts) -> Parts:
    """Return the sum of two totals; the first may be empty."""
    if total and set(total) != set(parts):
        raise InputError("some clients sent sums over distorted copies and others did not: nothing can be added up")
    return {name: total[name] + array for name, array in parts.items()} if total else dict(parts)


def _shrunk_sums(counts: Floats, sums: Floats, deviation: float) -> Floats:
    means = sums / counts[:, None]
    middle = sums.sum(axis=0) / counts.sum()
    offsets = means - middle
    noise = sums.shape[1] * (deviation / counts) ** 2
    kept = np.maximum(0.0, 1.0 - noise / np.maximum((offsets**2).sum(axis=1), 1e-300))
    return np.asarray(counts[:, None] * (middle + kept[:, None] * offsets))


def _room_for(counts: Floats, sums: Floats, scatter: Floats, deviation: float) -> Floats:
    between = (sums.T / counts) @ sums
    values, vectors = np.linalg.eigh(scatter - between)
    floor = max(deviation * math.sqrt(2.0 * len(scatter)), 1e-9 * float(np.abs(values).max(initial=0.0)), 1e-12)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T + between)
