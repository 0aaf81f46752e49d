"""A complete bundle for a device that took no part in training, from what the server keeps of the federation.

What a device brings decides what it gets (``LEVELS``). The federation's totals stay as they are: what the device adds
to them is in its own bundle alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_labels
from btfl.core.bundle import OWN_SCATTER, OWN_SUMS, ClientBundle
from btfl.core.calibration import Choice
from btfl.core.generative import class_scores, shares, with_copies
from btfl.core.heads import LinearHead, mean_entropy
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.provenance import KEY, Provenance
from btfl.core.summary import Summary
from btfl.core.sums import DISTORTED, PLAIN
from btfl.enrolment.head import fit_by_likelihood
from btfl.enrolment.shares import counts_by_em, strength
from btfl.errors import InputError
from btfl.methods.coherent.settings import FIRST_VERSION

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

HANDFUL = 50
"""Labels below which a device has but a few."""
_KEPT_BACK = 4  # of a few labels every fourth is not among the bundle's training features: methods may choose by it
LEVELS: Mapping[str, tuple[str, str]] = {
    "labels": (
        "a personal head, label shares and class means of its own, and mean entropies: as a client that was trained",
        "the shared extractor has not seen its data",
    ),
    "few labels": (
        "a personal head near the global one, and label shares that lean on everyone's",
        "a class without a label is known by everyone's share alone; means and entropies of few samples are coarse",
    ),
    "unlabelled": (
        "label shares by expectation maximisation; the personal head is the generative one under them",
        "no class means of its own, and a head that knows nothing beyond the shares; methods that need labels refuse",
    ),
    "nothing": (
        "the global answer; label shares can be learned along the stream",
        "nothing is known of the device: both heads are the global one, and no sample speaks for internal or external",
    ),
}
"""What a device can do by what it brought, and what it cannot: its bundle's metadata say it too."""


@dataclass(frozen=True, eq=False)
class Federation:
    """What a server keeps of a trained federation, and all that a new device needs of it.

    Parameters
    ----------
    head : the global head; None where there is none (FedRep)
    total : the sum of all clients' summaries, with their calibration
    provenance : which training it is; goes into every bundle
    head_shares : (classes,), the shares of labels that the global head was trained for; None: everyone's
    """

    head: LinearHead | None
    total: Summary
    provenance: Provenance | None = None
    head_shares: Floats | None = None

    def __post_init__(self) -> None:
        shape = self.total.classes, self.total.dimensions
        if self.head is not None and self.head.weight.shape != shape:
            raise InputError(
                f"the global head is {self.head.weight.shape}, but the totals are for (classes, dimensions) = {shape}: "
                "they are of different federations"
            )

    @cached_property
    def everyone(self) -> Floats:
        """Everyone's label shares, (classes,)."""
        return np.exp(shares(self.total.class_sums().counts))

    @cached_property
    def means(self) -> Floats:
        """Everyone's class means, (classes, dimensions)."""
        sums = self.total.class_sums()
        overall = sums.sums.sum(axis=0) / max(float(sums.counts.sum()), 1.0)
        return np.where(sums.counts[:, None] > 0, sums.sums / np.maximum(sums.counts, 1.0)[:, None], overall)

    @cached_property
    def scores(self) -> LinearHead:
        """The generative head's scores s_k(z)/T, without label shares."""
        choice = self.choice
        sums = with_copies(self.total.class_sums(PLAIN), self.total.class_sums(DISTORTED))
        return class_scores(sums, choice.shrinkage).under(np.zeros(self.total.classes), choice.temperature)

    @property
    def choice(self) -> Choice:
        """Temperature and shrinkage: what the clients' validation parts chose, or the defaults."""
        found = None if self.total.calibration is None else self.total.calibration.choose()
        return FIRST_VERSION if found is None else found

    @property
    def scale(self) -> float:
        """The root of the features' mean square length."""
        sums = self.total.class_sums()
        return math.sqrt(max(float(np.trace(sums.scatter)) / max(float(sums.counts.sum()), 1.0), 1e-12))

    def head_under(self, own: Floats) -> LinearHead:
        """Return the global head moved to these label shares; of a federation without one, the shares alone."""
        if self.head is None:
            return LinearHead(np.zeros((self.total.classes, self.total.dimensions)), np.log(own))
        before = self.everyone if self.head_shares is None else self.head_shares
        bias = np.zeros(self.head.classes) if self.head.bias is None else self.head.bias
        return LinearHead(self.head.weight, bias + np.log(own) - np.log(np.maximum(before, 1e-12)))


def enrol(
    federation: Federation,
    features: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> ClientBundle:
    """Return a bundle for a new device.

    Parameters
    ----------
    federation : what the server keeps
    features : (samples, dimensions) of the device's own samples; None: it has none
    labels : (samples,) of them; None: they have none
    validation : features and labels of further samples, to choose by. Without them, every fourth of at most 50 labelled
        samples is kept apart for methods that choose by validation samples; the head and the shares are made of all
    metadata : further entries of the bundle's metadata; JSON values only

    Example
    -------
    >>> enrol(federation, features, labels).save("device-7")                            # doctest: +SKIP
    """
    if features is None:
        if labels is not None:
            raise InputError("there are labels, but no features that they are of")
        return _from_nothing(federation, metadata)
    z = _features(federation, features)
    if labels is None:
        return from_counts(federation, counts_by_em(federation.scores.logits(z), federation.everyone), z, metadata)
    y = as_labels(labels, len(z), federation.total.classes)
    checked = None
    if validation is not None:
        apart = _features(federation, validation[0])
        checked = apart, as_labels(validation[1], len(apart), federation.total.classes)
    return _from_labels(federation, z, y, checked, metadata)


def _from_labels(
    federation: Federation, z: Floats, y: Labels, validation: tuple[Floats, Labels] | None, metadata: Any
) -> ClientBundle:
    own = Summary.of(z, y, federation.total.classes)
    counts, sums = _leaning(federation, own.class_sums().counts, own.class_sums().sums)
    centre = federation.head_under(counts / counts.sum())
    personal, chosen = fit_by_likelihood(z, y, centre, federation.scale, validation)
    kept = np.ones(len(y), dtype=np.bool_)
    if validation is None:
        if 1 < len(y) <= HANDFUL:
            kept[_KEPT_BACK - 1 :: _KEPT_BACK] = False
        validation = z[~kept], y[~kept]
    head = personal if federation.head is None else federation.head
    everyone = (federation.total + own).for_bundle()
    calibration = federation.total.calibration
    if calibration is not None:
        everyone |= calibration.to_arrays()
        answer = calibration.choose_local()
        if answer is not None and answer.has_own_covariance and len(y) >= HANDFUL:  # fewer make no covariance
            added = counts - own.class_sums().counts
            everyone[OWN_SCATTER] = own.class_sums().scatter + (federation.means.T * added) @ federation.means
    return ClientBundle(
        head,
        personal,
        own.likelihood,
        (federation.total + own).likelihood,
        mean_entropy(personal, z),
        mean_entropy(head, z),
        {
            **everyone,
            "local_class_counts": counts,
            OWN_SUMS: sums,
            "train_features": z[kept].astype(np.float32),
            "train_labels": y[kept],
            "validation_features": validation[0].astype(np.float32),
            "validation_labels": validation[1],
        },
        _told(federation, "labels" if len(y) >= HANDFUL else "few labels", len(z), len(y), chosen, metadata),
    )


def from_counts(
    federation: Federation, counts: Floats, features: Floats, metadata: Mapping[str, Any] | None = None
) -> ClientBundle:
    """Return the bundle of a device that has samples without labels, and how many of each class are expected.

    Parameters
    ----------
    counts : (classes,), expected counts of the classes
    features : (samples, dimensions)
    """
    likelihood = DiscretisedLikelihood.fit(features)
    personal, head = generative_head(federation, counts)
    entropies = mean_entropy(personal, features), mean_entropy(head, features)
    more = {"train_features": features.astype(np.float32)}
    return unlabelled_bundle(federation, counts, likelihood, entropies, more, metadata)


def unlabelled_bundle(
    federation: Federation,
    counts: Floats,
    likelihood: DiscretisedLikelihood,
    entropies: tuple[float, float],
    more: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, Any] | None,
) -> ClientBundle:
    """Return the bundle that follows from expected counts, a likelihood and the mean entropies, own head's first."""
    personal, head = generative_head(federation, counts)
    return ClientBundle(
        head,
        personal,
        likelihood,
        DiscretisedLikelihood.average([federation.total.likelihood, likelihood]),
        *entropies,
        {**federation.total.for_bundle(), "local_class_counts": _leaning(federation, counts)[0], **more},
        _told(federation, "unlabelled", likelihood.count, 0, None, metadata),
    )


def generative_head(federation: Federation, counts: Floats) -> tuple[LinearHead, LinearHead]:
    """Return the generative head under the shares of these counts, and the global head."""
    leaning = _leaning(federation, counts)[0]
    personal = federation.scores.under(np.log(leaning / leaning.sum()))
    return personal, federation.head or federation.scores.under(np.log(np.maximum(federation.everyone, 1e-12)))


def _from_nothing(federation: Federation, metadata: Mapping[str, Any] | None) -> ClientBundle:
    head = federation.head or federation.scores.under(np.log(np.maximum(federation.everyone, 1e-12)))
    # of the heads nothing is known but how sure they are of everyone's class means
    expected = float(sum(share * mean_entropy(head, mean[None]) for share, mean in zip(federation.everyone,
                     federation.means, strict=True)))  # fmt: skip
    everyone = federation.total.likelihood
    typical = max(round(everyone.count / everyone.clients), 1)
    one = DiscretisedLikelihood(everyone.frequencies, typical)  # as if one client more had come, who is like all
    counts = _leaning(federation, np.zeros(federation.total.classes))[0]
    return ClientBundle(
        head,
        head,
        one,
        DiscretisedLikelihood.average([everyone, one]),
        expected,
        expected,
        {**federation.total.for_bundle(), "local_class_counts": counts},
        _told(federation, "nothing", 0, 0, None, metadata),
    )


def _leaning(federation: Federation, counts: Floats, sums: Floats | None = None) -> tuple[Floats, Floats]:
    """Return counts and class sums with a few samples of everyone's beside the device's own: they lean on everyone's.

    The added ones lie at everyone's class means, so that they move no mean of the device's own.
    """
    added = strength(len(counts)) * np.maximum(federation.everyone, 1e-12)
    moved = np.zeros_like(federation.means) if sums is None else sums + added[:, None] * federation.means
    return counts + added, moved


def _features(federation: Federation, features: ArrayLike) -> Floats:
    found = as_features(features)
    if found.shape[1] != federation.total.dimensions:
        raise InputError(
            f"the features have {found.shape[1]} dimensions, but the federation's heads read "
            f"{federation.total.dimensions}: they come from another extractor"
        )
    return found


def _told(
    federation: Federation, level: str, samples: int, labels: int, chosen: float | None, metadata: Any
) -> dict[str, Any]:
    can, cannot = LEVELS[level]
    told: dict[str, Any] = {"level": level, "samples": samples, "labels": labels, "can": can, "cannot": cannot}
    if chosen is not None:
        told["head_strength"] = None if math.isinf(chosen) else chosen
    found = {**dict(metadata or {}), "enrolment": told}
    return found if federation.provenance is None else {**found, KEY: federation.provenance.as_dict()}
