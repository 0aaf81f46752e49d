"""What is known of a client's data under the final model: sums for the server, and arrays the client keeps.

Sums only, so that the server needs to learn no more than their total over clients. What a client keeps (its own
features among them) never leaves it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.generative import SUMS
from btfl.core.heads import LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.softmax import entropy, log_softmax
from btfl.data.federated import ClientData
from btfl.errors import InputError
from btfl.models import Network
from btfl.models.forward import extract
from btfl.pixels.augmix import distorted
from btfl.randomness import generator
from btfl.recipes.base import Sums

Features = NDArray[np.float32]

_KINDS = ("", "distorted_")
DISTORTION = 5.0
"""How strong the distortions are that are added up beside the images as they are; MEMO's at test time have 1."""


def distorted_features(network: Network, data: ClientData, seed: int) -> Features:
    """Return features of one distorted copy of each training image: what a class looks like when a picture is poor."""
    return extract(network, distorted(data.train.images, generator(seed, "distorted", data.client), DISTORTION))


def describe_features(
    features: Features, labels: NDArray[np.int64], classes: int, distorted: Features | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return the sums a client sends: zeros of its quantised features, and features added up by class.

    ``distorted`` are features of a distorted copy of each sample; without them their sums are zero.
    """
    copies = features[:0] if distorted is None else distorted
    return {
        "clients": np.ones(1),
        "samples": np.full(1, float(len(features))),
        "zero_frequencies": DiscretisedLikelihood.fit(features).frequencies,
        **_class_sums(features, labels, classes),
        **{f"distorted_{name}": array for name, array in _class_sums(copies, labels[: len(copies)], classes).items()},
    }


def _class_sums(features: Features, labels: NDArray[np.int64], classes: int) -> dict[str, NDArray[np.float64]]:
    exact = features.astype(np.float64)
    sums = np.zeros((classes, features.shape[1]))
    np.add.at(sums, labels, exact)
    return {
        "class_counts": np.bincount(labels, minlength=classes).astype(np.float64),
        "class_feature_sums": sums,
        # not a matrix product: the linear algebra library may add in another order with another number of threads
        "feature_scatter": np.einsum("ni,nj->ij", exact, exact),
    }


def check_sums(upload: Sums, classes: int, dimensions: int) -> None:
    """Refuse sums that ``describe_features`` could not have given for features of this kind."""
    shapes = {
        "clients": (1,),
        "samples": (1,),
        "zero_frequencies": (dimensions,),
        **{f"{kind}class_counts": (classes,) for kind in _KINDS},
        **{f"{kind}class_feature_sums": (classes, dimensions) for kind in _KINDS},
        **{f"{kind}feature_scatter": (dimensions, dimensions) for kind in _KINDS},
    }
    for name, shape in shapes.items():
        if name not in upload:
            raise InputError(f"{name} is missing")
        if upload[name].shape != shape:
            raise InputError(f"{name} has the shape {upload[name].shape}, not {shape}")
        if not np.isfinite(upload[name]).all():
            raise InputError(f"{name} holds NaN or infinite values")
        if (upload[name] < 0).any():
            raise InputError(f"{name} must not be negative, not {upload[name].min():g}")
    if (upload["zero_frequencies"] > 1).any():
        raise InputError(f"zero_frequencies are shares from 0 to 1, not {upload['zero_frequencies'].max():g}")
    samples, counts = float(upload["samples"][0]), upload["class_counts"]
    if upload["clients"][0] != 1:
        raise InputError(f"a client speaks for itself alone, not for {upload['clients'][0]:g} clients")
    if samples < 1 or (counts != np.rint(counts)).any() or counts.sum() != samples:
        raise InputError(f"class_counts must be whole numbers that add up to the {samples:g} samples")
    copies = upload["distorted_class_counts"]
    if copies.any() and (copies != counts).any():
        raise InputError("distorted_class_counts must be those of the samples, or zero where there are no copies")
    for kind in _KINDS:
        empty = upload[f"{kind}class_counts"] == 0
        if upload[f"{kind}class_feature_sums"][empty].any() or (empty.all() and upload[f"{kind}feature_scatter"].any()):
            raise InputError(
                f"{kind}class_feature_sums and {kind}feature_scatter must be zero where there is no sample"
            )


def global_likelihood(everyone: Sums) -> DiscretisedLikelihood:
    """Return the average of all clients' likelihoods, each client counting the same."""
    clients = round(float(everyone["clients"][0]))
    frequencies = np.clip(everyone["zero_frequencies"] / clients, 0.0, 1.0)
    return DiscretisedLikelihood(frequencies, round(float(everyone["samples"][0])), clients)


def global_statistics(everyone: Sums) -> dict[str, NDArray[np.float64]]:
    """Return what a bundle keeps of everyone's sums."""
    return {f"global_{kind}{name}": everyone[f"{kind}{name}"] for kind in _KINDS for name in SUMS}


def make_bundle(
    global_head: LinearHead,
    personal_head: LinearHead,
    train_features: Features,
    validation_features: Features,
    data: ClientData,
    everyone: Sums,
    metadata: dict[str, Any],
) -> ClientBundle:
    """Put together what the client keeps, with the statistics every test-time method may ask for.

    ``statistics`` holds: ``global_class_counts`` (classes,), ``global_class_feature_sums`` (classes, d) and
    ``global_feature_scatter`` (d, d), the sum of z z', added up over all clients' training sets, and the same as
    ``global_distorted_...`` over distorted copies;
    ``local_class_counts`` of the client's own; and its own ``train_features``, ``train_labels``,
    ``validation_features`` and ``validation_labels``.
    """
    classes = global_head.classes
    return ClientBundle(
        global_head,
        personal_head,
        DiscretisedLikelihood.fit(train_features),
        global_likelihood(everyone),
        local_entropy=mean_entropy(personal_head, train_features),
        global_entropy=mean_entropy(global_head, train_features),
        statistics={
            **global_statistics(everyone),
            "local_class_counts": np.bincount(data.train.labels, minlength=classes).astype(np.float64),
            "train_features": train_features,
            "train_labels": data.train.labels,
            "validation_features": validation_features,
            "validation_labels": data.validation.labels,
        },
        metadata=metadata,
    )


def mean_entropy(head: LinearHead, features: Features) -> float:
    """Return a head's mean entropy over a set of features, in nats."""
    return float(entropy(log_softmax(head.logits(features.astype(np.float64)))).mean())
