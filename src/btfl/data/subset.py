"""A smaller pool of the same kind: fewer samples, the same mix of classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from btfl.data.source import Source
from btfl.errors import InputError
from btfl.randomness import generator


def take(source: Source, samples: int) -> Source:
    """Return the source with a smaller pool, each class by its share.

    Which samples are kept does not depend on the seed of a run: seeds differ in how samples are dealt, not in which.

    Parameters
    ----------
    source : the dataset
    samples : how many samples of the pool to keep; where there are no more, the source is returned as it is
    """
    labels, total = source.pool.labels, len(source.pool)
    if samples < 1:
        raise InputError(f"samples is how many samples to keep, at least 1, not {samples}")
    if samples >= total:
        return source
    order = generator(0, "subset").permutation(total)
    # Sorting by rank within the class, as a share of the class, takes from all classes evenly.
    rank = np.empty(total)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        rank[of_class] = (np.arange(len(of_class)) + 0.5) / len(of_class)
    kept = np.sort(order[np.argsort(rank[order], kind="stable")][:samples])
    return replace(
        source,
        pool=source.pool.take(kept),
        domains=None if source.domains is None else source.domains[kept],
        owners=None if source.owners is None else source.owners[kept],
        notes=(*source.notes, f"only {samples:,} of the {total:,} {source.kind} were used"),
    )
