"""Accuracy by method and stream over seeds, and how sure a difference between two methods is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.data.streams import STREAMS
from btfl.errors import InputError
from btfl.randomness import generator

AVERAGE = "average"
DRAWS, LEVEL = 4000, 0.95


def by_client(rows: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy in % indexed by (method, seed, client): the streams that are there, and their average."""
    table = rows.pivot_table(index=["method", "seed", "client"], columns="stream", values="accuracy") * 100
    table = table[streams_in(rows)]
    table[AVERAGE] = table.mean(axis=1, skipna=False)
    return table


def streams_in(rows: pd.DataFrame) -> list[str]:
    """Return which of the five streams rows are about; B and D do not exist for all data."""
    found = set(rows["stream"].unique())
    return [stream for stream in STREAMS if stream in found]


def by_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy in % indexed by (method, seed): each client counts the same."""
    return by_client(rows).groupby(level=["method", "seed"], sort=False).mean()


def values_of(table: pd.DataFrame, method: str, column: str) -> NDArray[np.float64]:
    """Return one method's numbers, (rows,), from a table of ``by_client`` or ``by_seed``; empty if it is not there."""
    rows = table.index.get_level_values("method") == method
    return table.loc[rows, column].to_numpy(dtype=np.float64)


def spread(values: NDArray[np.float64]) -> float | None:
    """Return the standard deviation over seeds; None if there is only one."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True)
class Interval:
    """A difference in percentage points, with its bootstrap confidence interval."""

    difference: float
    low: float
    high: float
    clients: int
    seeds: int


def compare(rows: pd.DataFrame, method: str, other: str) -> dict[str, Interval]:
    """Compare two methods on the same clients of the same seeds.

    Parameters
    ----------
    rows : of ``results.parquet``
    method, other : their names; the difference is the accuracy of the first minus that of the second

    Returns the mean difference and its interval for each stream, and for ``average``.
    """
    table = by_client(rows)
    known = table.index.get_level_values("method").unique()
    if method not in known or other not in known:
        raise InputError(f"'{method}' and '{other}' are not both among the results")
    wide = table.unstack("method")
    paired = pd.DataFrame({column: wide[column, method] - wide[column, other] for column in table.columns})
    paired = paired.dropna(subset=[AVERAGE])
    if not len(paired):
        raise InputError(f"'{method}' and '{other}' share no seed: they cannot be compared pair by pair")
    seeds = [part.to_numpy(np.float64) for _, part in paired.groupby(level="seed")]
    return dict(zip(table.columns, _bootstrap(seeds), strict=True))


def paired_bootstrap(differences: Sequence[NDArray[np.float64]], seed: int = 0) -> Interval:
    """Return the percentile interval of a mean of paired differences.

    Seeds are drawn with replacement, and clients within each drawn seed; with one seed, clients alone.

    Parameters
    ----------
    differences : a (clients,) array for each seed
    seed : of the draws
    """
    (found,) = _bootstrap([values[:, None] for values in differences], seed)
    return found


def means(table: pd.DataFrame) -> list[Interval]:
    """Return the mean of each column of a table of ``by_client``, with its interval over clients (and seeds)."""
    return _bootstrap([part.to_numpy(np.float64) for _, part in table.groupby(level="seed")])


def _bootstrap(differences: Sequence[NDArray[np.float64]], seed: int = 0) -> list[Interval]:
    """Return an interval for each column of (clients, columns) arrays, one a seed; all see the same draws."""
    shares, which = _draws(tuple(map(len, differences)), seed)
    # Means of redrawn clients: (a slot for each seed drawn, which seed, draw, column).
    means = np.stack(
        [np.stack([share @ values for share, values in zip(slot, differences, strict=True)]) for slot in shares]
    )
    drawn = np.take_along_axis(means, which[:, None, :, None], axis=1)[:, 0].mean(axis=0)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    observed = np.mean([values.mean(axis=0) for values in differences], axis=0)
    clients, seeds = sum(map(len, differences)), len(differences)
    return [
        Interval(float(mean), float(least), float(most), clients, seeds)
        for mean, least, most in zip(observed, low, high, strict=True)
    ]


@lru_cache(maxsize=4)
def _draws(clients: tuple[int, ...], seed: int) -> tuple[list[list[NDArray[np.float64]]], NDArray[np.int64]]:
    """Return what share each client has in each draw, and which seed is drawn; every pair of methods sees the same.

    Parameters
    ----------
    clients : how many there are in each seed
    seed : of the draws

    Returns a (draws, clients) array for each slot and seed, and (slots, draws) places of seeds.
    """
    rng = generator(seed, "bootstrap")
    shares = [[_shares(rng.integers(count, size=(DRAWS, count))) for count in clients] for _ in clients]
    return shares, rng.integers(len(clients), size=(len(clients), DRAWS))


def _shares(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how often each client was drawn, (draws, clients), as a share of its draw."""
    draws, clients = rows.shape
    places = rows + clients * np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=rows.size).reshape(rows.shape) / clients
