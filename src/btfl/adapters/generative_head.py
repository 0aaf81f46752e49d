"""The generative head in place of the trained global one, for any method that mixes heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from btfl.adapters.coherent_settings import CoherentSettings
from btfl.bayes.evidence import entropy, log_softmax
from btfl.bayes.generative import class_scores, shares
from btfl.bundle import ClientBundle
from btfl.errors import InputError

NEEDED = ("global_class_counts", "global_class_feature_sums", "global_feature_scatter", "train_features")


def with_generative_head(bundle: ClientBundle, settings: CoherentSettings | None = None) -> ClientBundle:
    """Give the bundle with the generative head under everyone's label shares, and its mean entropy, as global ones."""
    settings = settings or CoherentSettings()
    if missing := [name for name in NEEDED if name not in bundle.statistics]:
        raise InputError(f"a generative head needs the statistics {', '.join(missing)}; train anew")
    counts, sums, scatter, features = (np.asarray(bundle.statistics[name], dtype=np.float64) for name in NEEDED)
    head = class_scores(counts, sums, scatter, settings.shrinkage).under(shares(counts), settings.temperature)
    return replace(bundle, global_head=head, global_entropy=float(entropy(log_softmax(head.logits(features))).mean()))
