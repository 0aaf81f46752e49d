"""Accuracy by method and stream over seeds, and how sure a difference between two methods is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.data.streams import STREAMS
from btfl.errors import InputError
from btfl.randomness import generator

AVERAGE = "average"
DRAWS, LEVEL = 4000, 0.95
_KEPT = 2**23  # numbers: 64 MB of draws are kept at most, more are drawn again for each pair of methods


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


def by_seed(table: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy in % indexed by (method, seed), from a table of ``by_client``: each client counts the same."""
    return table.groupby(level=["method", "seed"], sort=False).mean()


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
    return compare_in(by_client(rows), method, other)


def compare_in(table: pd.DataFrame, method: str, other: str) -> dict[str, Interval]:
    """Compare two methods as ``compare`` does, given the table of ``by_client``: it is made once for all pairs."""
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
    clients = tuple(map(len, differences))
    few = len(clients) * sum(clients) * DRAWS <= _KEPT
    draws = iter(_kept_draws(clients, seed)) if few else _draws(clients, seed)
    # Means of redrawn clients: (a slot for each seed drawn, which seed, draw, column).
    means = np.stack([np.stack([next(draws) @ values for values in differences]) for _ in differences])
    which = next(draws)
    drawn = np.take_along_axis(means, which[:, None, :, None], axis=1)[:, 0].mean(axis=0)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    observed = np.mean([values.mean(axis=0) for values in differences], axis=0)
    return [
        Interval(float(mean), float(least), float(most), sum(clients), len(clients))
        for mean, least, most in zip(observed, low, high, strict=True)
    ]


def _draws(clients: tuple[int, ...], seed: int) -> Iterator[NDArray[Any]]:
    """Give each client's share of each draw, (draws, clients), for each slot and seed; then which seed in each slot."""
    rng = generator(seed, "bootstrap")
    for _ in clients:
        for count in clients:
            yield _shares(rng.integers(count, size=(DRAWS, count)))
    yield rng.integers(len(clients), size=(len(clients), DRAWS))


@lru_cache(maxsize=2)
def _kept_draws(clients: tuple[int, ...], seed: int) -> tuple[NDArray[Any], ...]:
    """Return the draws: all pairs of methods on the same clients see the same ones."""
    return tuple(_draws(clients, seed))


def _shares(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how often each client was drawn, (draws, clients), as a share of its draw."""
    draws, clients = rows.shape
    places = rows + clients * np.arange(draws)[:, None]
    found: NDArray[np.float64] = np.bincount(places.ravel(), minlength=rows.size).reshape(rows.shape) / clients
    return found
