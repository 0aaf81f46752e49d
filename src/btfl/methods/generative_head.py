"""The generative head in place of the trained global one, for any method that mixes heads."""

from __future__ import annotations

from dataclasses import replace

from btfl.core.bundle import ClientBundle
from btfl.core.generative import class_scores, everyones_sums, shares
from btfl.core.heads import mean_entropy
from btfl.methods.coherent.settings import CoherentSettings


def with_generative_head(bundle: ClientBundle, settings: CoherentSettings | None = None) -> ClientBundle:
    """Return the bundle with the generative head under everyone's label shares, and its mean entropy, as global.

    Without settings it is that of Coherent's first version, as the tables of 0.1.0 have it.
    """
    settings = settings or CoherentSettings.make(preset="first")
    chosen = settings.chosen(bundle)
    features = bundle.statistic("train_features")
    sums = everyones_sums(bundle, settings.distorted)
    head = class_scores(sums, chosen.shrinkage).under(shares(sums.counts), chosen.temperature)
    return replace(bundle, global_head=head, global_entropy=mean_entropy(head, features))
