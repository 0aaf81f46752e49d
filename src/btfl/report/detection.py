"""How well e separates external samples from internal ones: what makes it a drift detector."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PAIRS: Mapping[str, tuple[str, ...]] = {
    "A against C": ("original_ind", "original_exd"),
    "B against D": ("shifted_ind", "shifted_exd"),
    "inside E": ("synthetical",),
}
"""Streams that hold the internal and external samples to be separated."""

GRID = np.linspace(0.0, 1.0, 101)


def pairs_in(streams: Collection[str]) -> list[str]:
    """Name the pairs whose streams are all there."""
    return [name for name, needed in PAIRS.items() if all(stream in streams for stream in needed)]


def roc(scores: Floats, external: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return false and true positive rates as the threshold falls; equal scores move together.

    Parameters
    ----------
    scores : (n,), the larger the more external
    external : (n,), the truth; both kinds must be there
    """
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    hits = np.cumsum(external[order])[last]
    misses = 1 + last - hits
    return np.append(0.0, misses / misses[-1]), np.append(0.0, hits / hits[-1])


def area(scores: Floats, external: NDArray[np.bool_]) -> float:
    """Return the area under the curve: the chance that an external sample scores above an internal one."""
    false, true = roc(scores, external)
    return float(np.trapezoid(true, false))


def per_client(samples: pd.DataFrame, pair: str) -> list[tuple[Floats, NDArray[np.bool_]]]:
    """Return e and the truth for each client and seed that has both kinds of sample: a detector runs on one device.

    ``samples`` are those of one method (``Group.samples_of``).
    """
    chosen = samples.loc[samples["stream"].isin(PAIRS[pair]), ["seed", "client", "e", "external"]]
    parts = []
    for _, of_client in chosen.groupby(["seed", "client"]):
        external = of_client["external"].to_numpy(dtype=bool)
        if external.any() and not external.all():
            parts.append((of_client["e"].to_numpy(dtype=np.float64), external))
    return parts


def mean_area(samples: pd.DataFrame, pair: str) -> float:
    """Return the mean over clients and seeds of the area under the curve of one method."""
    areas = [area(scores, external) for scores, external in per_client(samples, pair)]
    return float(np.mean(areas)) if areas else float("nan")


def mean_roc(samples: pd.DataFrame, pair: str) -> Floats:
    """Return one method's mean over clients and seeds of the true positive rate at the rates of ``GRID``."""
    curves = [np.interp(GRID, *roc(scores, external)) for scores, external in per_client(samples, pair)]
    return np.asarray(np.mean(curves, axis=0), dtype=np.float64)
