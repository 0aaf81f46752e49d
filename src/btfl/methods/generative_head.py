"""The generative head in place of the trained global one, for any method that mixes heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.generative import SUMS, class_scores, shares
from btfl.core.softmax import entropy, log_softmax
from btfl.errors import InputError
from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]


def class_statistics(bundle: ClientBundle, distorted: float) -> tuple[Floats, Floats, Floats]:
    """Return everyone's class counts, feature sums and scatter, those of distorted copies counting so much more.

    A bundle without copies, of an app that sent none or of an older btfl, has the images as they are alone.
    """
    plain = _of(bundle, "global")
    if not any(f"global_distorted_{name}" in bundle.statistics for name in SUMS):
        return plain
    copies = _of(bundle, "global_distorted")
    for name, array, copy in zip(SUMS, plain, copies, strict=True):
        if copy.shape != array.shape:
            raise InputError(f"global_distorted_{name} has the shape {copy.shape}, but global_{name} {array.shape}")
    return plain[0] + distorted * copies[0], plain[1] + distorted * copies[1], plain[2] + distorted * copies[2]


def _of(bundle: ClientBundle, kind: str) -> tuple[Floats, Floats, Floats]:
    if missing := [f"{kind}_{name}" for name in SUMS if f"{kind}_{name}" not in bundle.statistics]:
        raise InputError(f"the bundle lacks the statistics {', '.join(missing)}, which training leaves; train it anew")
    counts, sums, scatter = (np.asarray(bundle.statistics[f"{kind}_{name}"], dtype=np.float64) for name in SUMS)
    return counts, sums, scatter


def with_generative_head(bundle: ClientBundle, settings: CoherentSettings | None = None) -> ClientBundle:
    """Return the bundle with the generative head under everyone's label shares, and its mean entropy, as global ones."""
    settings = settings or CoherentSettings()
    if "train_features" not in bundle.statistics:
        raise InputError("a generative head needs the client's train_features, to know its entropy; train anew")
    features = np.asarray(bundle.statistics["train_features"], dtype=np.float64)
    counts, sums, scatter = class_statistics(bundle, settings.distorted)
    head = class_scores(counts, sums, scatter, settings.shrinkage).under(shares(counts), settings.temperature)
    return replace(bundle, global_head=head, global_entropy=float(entropy(log_softmax(head.logits(features))).mean()))
