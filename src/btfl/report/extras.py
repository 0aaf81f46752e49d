"""Columns beside accuracy, on request: how evenly clients are served, how far confidence can be believed, and costs.

Costs are as they were measured: bytes and seconds of a training's rounds from its log, the time of a sample from the
benchmark itself. They are no function of the settings, and unknown (a dash) where weights came from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.errors import InputError, UnknownNameError
from btfl.report import calibration
from btfl.report.accuracy import AVERAGE
from btfl.runs.costs import Times, TrainingCost, training_cost

if TYPE_CHECKING:
    from btfl.report.groups import Group
    from btfl.runs.saved import SavedRun

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Extra:
    """A column: a number for each method and seed.

    Parameters
    ----------
    name : how it is asked for
    heading : how a table calls it
    help : what it is, for a note below the table
    of_seed : the number, from clients' average accuracies in %, from one seed's samples, or from a run and a method
    from_samples, from_run : which of these it is made from
    least : whether less is better
    digits : that tables show
    """

    name: str
    heading: str
    help: str
    of_seed: Callable[..., float]
    from_samples: bool = False
    least: bool = False
    digits: int = 2
    from_run: bool = False

    def values(self, group: Group, method: str) -> Floats:
        """Return the number for each seed, (seeds,), in order; NaN where samples are needed and were not kept."""
        if self.from_run:
            return np.array([self.of_seed(run, method) for run in group.runs])
        if not self.from_samples:
            clients = group.by_client.xs(method, level="method")[AVERAGE]
            parts = [part.to_numpy(np.float64) for _, part in clients.groupby(level="seed")]
            return np.array([self.of_seed(part) for part in parts])
        if not group.has_samples:
            return np.full(1, math.nan)
        samples = group.samples_of(method)
        own = samples[samples["stream"].isin(group.streams)]
        return np.array([self.of_seed(part) for _, part in own.groupby("seed")])


def deviation(clients: Floats) -> float:
    """Return the standard deviation over clients: all of them, so divided by their number."""
    return float(clients.std())


def worst_decile(clients: Floats) -> float:
    """Return the mean of the worst tenth of the clients, of at least one."""
    return float(np.sort(clients)[: math.ceil(len(clients) / 10)].mean())


def worst_client(clients: Floats) -> float:
    """Return the accuracy of the client that is served worst."""
    return float(clients.min())


def calibration_error(samples: pd.DataFrame) -> float:
    """Return the expected calibration error in %."""
    found = calibration.reliability(samples["confidence"].to_numpy(), samples["right"].to_numpy(dtype=bool))
    return 100 * found.error


def log_loss(samples: pd.DataFrame) -> float:
    """Return the mean negative log-likelihood of the true class, in nats."""
    return calibration.log_loss(samples["true_probability"].to_numpy())


def megabytes_up(run: SavedRun, method: str) -> float:
    """Return what a client has uploaded in all rounds of the method's training, mean over clients."""
    return _training(run, method).bytes_up / 1e6 / _clients(run)


def megabytes_down(run: SavedRun, method: str) -> float:
    """Return what a client was sent in all rounds of the method's training, mean over clients."""
    return _training(run, method).bytes_down / 1e6 / _clients(run)


def training_seconds(run: SavedRun, method: str) -> float:
    """Return the wall time of all rounds of the method's training."""
    return _training(run, method).seconds


def sample_microseconds(run: SavedRun, method: str) -> float:
    """Return the mean time that the method took for a sample."""
    return Times.of_run(run.folder).microseconds(method)


def _training(run: SavedRun, method: str) -> TrainingCost:
    return training_cost(run.folder, str(run.rows.loc[run.rows["method"] == method, "recipe"].iloc[0]))


def _clients(run: SavedRun) -> int:
    return int(run.rows["client"].nunique())


_EVERY = (
    Extra(
        "deviation", "std over clients",
        "Std over clients: standard deviation of the clients' averages, in percentage points.", deviation, least=True,
    ),
    Extra(
        "worst-decile", "worst decile", "Worst decile: mean over the tenth of the clients with the lowest averages.",
        worst_decile,
    ),
    Extra("worst-client", "worst client", "Worst client: the lowest average of a client.", worst_client),
    Extra(
        "ece", "ECE", f"ECE: expected calibration error in %, {calibration.BINS} bins, all samples together.",
        calibration_error, from_samples=True, least=True,
    ),
    Extra(
        "log-loss", "log loss", "Log loss: of the true class, in nats, all samples together.",
        log_loss, from_samples=True, least=True, digits=3,
    ),
    Extra(
        "bytes-up", "MB up", "MB up: arrays that a client uploads in all rounds of the training, mean over clients.",
        megabytes_up, from_run=True,
    ),
    Extra(
        "bytes-down", "MB down",
        "MB down: arrays that a client is sent in all rounds. The end of training is not counted; methods that share a "
        "training share its cost.", megabytes_down, from_run=True,
    ),
    Extra(
        "training-time", "training s", "Training: seconds of wall time of all rounds, on the machine that it had.",
        training_seconds, digits=0, from_run=True,
    ),
    Extra(
        "sample-time", "µs/sample",
        "Time of a sample: in the benchmark itself, beside whatever else ran; of a method on features without the "
        "extractor's pass.", sample_microseconds, digits=0, from_run=True,
    ),
)  # fmt: skip
EXTRAS: Mapping[str, Extra] = {extra.name: extra for extra in _EVERY}
SETS: Mapping[str, tuple[str, ...]] = {
    "fairness": ("deviation", "worst-decile", "worst-client"),
    "calibration": ("ece", "log-loss"),
    "cost": ("bytes-up", "bytes-down", "training-time", "sample-time"),
}
"""Several columns under one name."""


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that these names stand for, each once; ``fairness``, ``calibration``, ``cost`` are several.

    >>> chosen(["fairness", "ece"])
    ('deviation', 'worst-decile', 'worst-client', 'ece')
    """
    if isinstance(names, str):
        raise InputError(f"columns are a list of names, not the text {names!r}")
    for name in names:
        if name not in EXTRAS and name not in SETS:
            raise UnknownNameError("column", name, [*SETS, *EXTRAS])
    return tuple(dict.fromkeys(each for name in names for each in SETS.get(name, (name,))))
