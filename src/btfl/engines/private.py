"""Averages and totals with differential privacy, for a server that clients trust with their updates.

Training (McMahan et al., 2018): each client's update is clipped to a length C and counts as much as any other's, noise
is added to their sum, and the sum is divided by the number of clients that was planned. The lengths adapt to a quantile
if asked for (Andrew et al., 2021): how many updates were shorter than C is released too, with noise of its own.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.core.client import Weights
from btfl.core.private import Parts, PrivateSums, add_parts, default_radius
from btfl.core.summary import Summary
from btfl.engines.accounting import Account, Plan, make_plan
from btfl.engines.aggregate import Averaged
from btfl.recipes.base import Update
from btfl.recipes.privacy import noise_generator
from btfl.recipes.settings import TrainingSettings

Floats = NDArray[np.float64]

COUNT_SHARE = 0.05
"""Of a round's budget, for the count of updates that were short enough, where the clip adapts."""
_RATE = 0.2  # how quickly the clip adapts


class PrivateAveraging:
    """Takes the updates of one round, one at a time.

    Parameters
    ----------
    shared : weights that the clients began with
    settings : of training, privacy included
    multiplier : standard deviation of the noise, in units of the sensitivity
    clip : the length to clip updates to
    cohort : how many clients were planned for a round; whoever stays away changes nothing about it
    round_ : which round
    """

    def __init__(
        self, shared: Weights, settings: TrainingSettings, multiplier: float, clip: float, cohort: float, round_: int
    ) -> None:
        self._shared, self._settings, self._clip, self._cohort = shared, settings, clip, cohort
        self._multiplier, self._round = multiplier, round_
        self._sum: dict[str, Floats] = {name: np.zeros(array.shape) for name, array in sorted(shared.items())}
        self._short = 0.0

    def add(self, client: int, update: Update) -> None:
        """Take one client's update, which has been checked."""
        steps = {
            name: np.asarray(array, np.float64) - self._shared.get(name, np.float64(0))
            for name, array in sorted(update.upload.items())  # a recipe may add arrays to those it began with
        }
        length = math.sqrt(sum(float(np.vdot(step, step)) for step in steps.values()))
        factor = min(1.0, self._clip / max(length, 1e-300))
        for name, step in steps.items():
            self._sum[name] = self._sum.get(name, np.float64(0)) + step * factor
        self._short += 0.5 if length <= self._clip else -0.5

    def result(self) -> Averaged:
        """Return the noisy mean."""
        rng = noise_generator(self._settings, "round", self._round)
        adapts = self._settings.clip_quantile is not None
        multiplier = self._multiplier / math.sqrt(1 - COUNT_SHARE) if adapts else self._multiplier
        replaced = 1.0 if self._settings.privacy_unit == "client" else 2.0  # a record turns one update into another
        deviation = multiplier * self._clip * replaced
        weights = {
            name: np.asarray(
                self._shared.get(name, np.float64(0))
                + (total + rng.normal(0.0, deviation, total.shape)) / self._cohort,
                dtype=np.float32,
            )
            for name, total in sorted(self._sum.items())
        }
        return Averaged(weights, clip=self._adapted(rng, replaced) if adapts else self._clip)

    def _adapted(self, rng: np.random.Generator, replaced: float) -> float:
        quantile = self._settings.clip_quantile
        assert quantile is not None
        # each client's count is -1/2 or 1/2, so that one client moves the sum by at most 1/2
        deviation = self._multiplier / math.sqrt(COUNT_SHARE) * 0.5 * replaced
        share = (self._short + rng.normal(0.0, deviation)) / self._cohort + 0.5
        return self._clip * math.exp(-_RATE * (min(max(share, 0.0), 1.0) - quantile))


class PrivateTotalling:
    """Takes the clients' summaries, one at a time, and returns their total with noise.

    Parameters
    ----------
    settings : of training, privacy included
    multiplier : standard deviation of the noise, in units of the sensitivity
    clients : how many there are in the federation, which everyone may know
    """

    def __init__(self, settings: TrainingSettings, multiplier: float, clients: int) -> None:
        self._settings, self._multiplier, self._clients = settings, multiplier, clients
        self._total: Parts = {}
        self._sums: PrivateSums | None = None

    def add(self, client: int, summary: Summary) -> None:
        """Take one client's sums, over features that it has clipped."""
        if self._sums is None:
            self._sums = private_sums(self._settings, self._multiplier, summary.dimensions)
        self._total = add_parts(self._total, self._sums.parts(summary))

    def result(self) -> tuple[Summary, dict[int, str]]:
        """Return the total with noise, as sums that methods can work with; nobody is left out of it."""
        if self._sums is None:
            return Summary.total(()), {}  # which says that nobody sent any
        noisy = self._sums.noisy(self._total, noise_generator(self._settings, "summary"))
        return self._sums.released(noisy, self._clients), {}


def private_sums(settings: TrainingSettings, multiplier: float, dimensions: int) -> PrivateSums:
    """Return how a total over features of so many dimensions is released."""
    radius = settings.feature_radius or default_radius(dimensions)
    return PrivateSums(radius, multiplier, settings.client_bound if settings.privacy_unit == "client" else None)


class PrivateRun:
    """The privacy of one run: its plan, and the account of what it has released.

    Parameters
    ----------
    settings : of training, privacy included
    rounds, clients : of the federation
    path : where the account is kept; None: nowhere
    """

    def __init__(self, settings: TrainingSettings, rounds: int, clients: int, path: Path | None) -> None:
        self._settings, self._clients = settings, clients
        self.plan: Plan = make_plan(settings, rounds)
        self.account = Account(path, settings)

    def averaging(self, shared: Weights, round_: int, clip: float | None) -> PrivateAveraging | None:
        """Return what averages a round; None where the server adds no noise to it."""
        multiplier = self.multiplier_of_round(round_)
        if multiplier is None:
            return None
        clip = self._settings.update_clip if clip is None else clip
        return PrivateAveraging(shared, self._settings, multiplier, clip, self.cohort, round_)

    @property
    def cohort(self) -> float:
        """How many clients are planned for a round."""
        return max(self._settings.participation * self._clients, 1.0)

    def multiplier_of_round(self, round_: int) -> float | None:
        """Return the noise on the sum of a round's updates, and write down what the round releases.

        None if there is none: training is not private, or clients send updates that have their noise already (DP-SGD).
        """
        plan = self.plan
        if plan.training is not None:
            self.account.note(f"round {round_}", plan.training, plan.sampling, plan.steps)
        return plan.training if self._settings.clips_updates else None

    def multiplier_of_summary(self) -> float:
        """Return the noise of the summary under secure aggregation, and write it down."""
        self.account.note("summary", self.plan.summary)
        return self.plan.summary

    def totalling(self) -> PrivateTotalling:
        """Return what adds up the summaries."""
        self.account.note("summary", self.plan.summary)
        return PrivateTotalling(self._settings, self.plan.summary, self._clients)


def drawn(settings: TrainingSettings, clients: int, round_: int) -> list[int]:
    """Return the clients of a round, each drawn independently of the others, with the probability of taking part."""
    if settings.participation >= 1:
        return list(range(clients))
    chances = noise_generator(settings, "participants", round_).random(clients)
    return np.flatnonzero(chances < settings.participation).tolist()
