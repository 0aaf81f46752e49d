"""How much noise a run needs: what it releases, what that comes to, and the least noise that stays within its budget.

Privacy loss is computed by Google's ``dp-accounting`` from the distribution of the loss (PLD), never by hand. Sampling
counts in favour of a client, or of a record, only where it is drawn independently of all others (Poisson): clients of a
round by DP-FedAvg, records of a step by DP-SGD.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import scipy  # loads what is used when it is first used, so that starting a training is quick

from btfl.errors import InputError
from btfl.recipes.settings import TrainingSettings

_LEAST_MULTIPLIER, _TOLERANCE = 0.4, 1e-3
_FINE, _COARSE = 1e-4, 1e-3  # grids of privacy losses: the library's own, and a quicker one; neither counts too little
_WELL_USED = 0.98  # of the budget: with less, the coarse grid has asked for too much noise


@dataclass(frozen=True)
class Release:
    """Something that was released: a Gaussian mechanism, so many times."""

    what: str
    multiplier: float
    """Standard deviation of the noise, in units of the sensitivity."""
    sampling: float = 1.0
    """Probability with which a client takes part, or with which a record is in a step; 1: all do."""
    times: int = 1

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"what": self.what, "multiplier": self.multiplier, "sampling": self.sampling, "times": self.times}


@dataclass(frozen=True)
class Plan:
    """The noise of a run, chosen before it begins.

    Parameters
    ----------
    training : noise multiplier of a round, or of a step of DP-SGD; None: training is not private
    summary : noise multiplier of the summary
    sampling : probability with which a client takes part in a round, or with which a record is in a step
    steps : of DP-SGD, by each client in a round; 1 where a round is one release
    """

    training: float | None
    summary: float
    sampling: float
    steps: int = 1

    def releases(self, rounds: int) -> tuple[Release, ...]:
        """Return what a whole run of so many rounds releases about one unit.

        With DP-SGD that is what one client releases: a record is one client's, so that what the others release costs
        it nothing. A client is counted as if it took part in every round.
        """
        summary = Release("summary", self.summary)
        if self.training is None or not rounds:
            return (summary,)
        return Release("training", self.training, self.sampling, rounds * self.steps), summary


def make_plan(settings: TrainingSettings, rounds: int) -> Plan:
    """Choose the least noise with which a run stays within the epsilon and delta of its settings.

    The summary gets a share of the budget in the sense of 1 / multiplier^2, which is what adds up over releases.
    """
    if settings.clips_records:
        sampling, steps = sampling_of(settings), steps_of(settings)
    else:
        # a record changes a client's update to any other one: no statement about sampling is made for it
        sampled = settings.privacy_unit == "client" and settings.participation < 1
        sampling, steps = settings.participation if sampled else 1.0, 1
    if settings.privacy == "full" and rounds:
        ratio = ((1 - settings.summary_share) / settings.summary_share / (rounds * steps * sampling**2)) ** 0.5

        def plan(multiplier: float) -> Plan:
            return Plan(multiplier, multiplier * ratio, sampling, steps)
    else:

        def plan(multiplier: float) -> Plan:
            return Plan(None, multiplier, sampling)

    unit = plan(1.0).releases(rounds)
    return plan(_calibrated(settings.epsilon, settings.delta, unit, settings.clips_records))


def sampling_of(settings: TrainingSettings) -> float:
    """Return the probability with which a record is in a step of DP-SGD: the same for every client."""
    return min(settings.batch / planned_samples(settings), 1.0)


def steps_of(settings: TrainingSettings) -> int:
    """Return how many steps of DP-SGD a client takes in a round, however many records it has."""
    return settings.local_epochs * math.ceil(planned_samples(settings) / settings.batch)


def planned_samples(settings: TrainingSettings) -> int:
    """Return the number of records that DP-SGD is planned for, which everyone may know."""
    assert settings.client_samples is not None, "checked with the settings"
    return settings.client_samples


@lru_cache(maxsize=64)
def _calibrated(target: float, delta: float, unit: tuple[Release, ...], records: bool) -> float:
    """Return the factor for all multipliers with which these releases stay within the target.

    It is sought above ``_LEAST_MULTIPLIER``: with less noise than that the numbers promise nothing, and take long. For
    ``records`` every process of a client seeks it, on a coarser grid if that is good enough.
    """
    dp, pld = _library()

    def scaled(factor: float) -> list[Release]:
        return [Release(one.what, one.multiplier * factor, one.sampling, one.times) for one in unit]

    least = _LEAST_MULTIPLIER / min(one.multiplier for one in unit)
    unsampled = math.sqrt(sum(one.times / one.multiplier**2 for one in unit))
    closed = max(_gaussian_multiplier(target, delta) * unsampled, least)
    if all(one.sampling >= 1 for one in unit):  # one Gaussian mechanism: the library only has the last word
        while epsilon_of(scaled(closed), delta) > target:
            closed *= 1 + _TOLERANCE
        return closed
    near = max(closed * unit[0].sampling, 2 * least)

    def sought(grid: float) -> float:
        if epsilon_of(scaled(least), delta, grid) <= target:
            return least
        found = dp.calibrate_dp_mechanism(
            lambda: pld.PLDAccountant(value_discretization_interval=grid),
            lambda factor: _event(scaled(factor)),
            target,
            delta,
            dp.LowerEndpointAndGuess(least, near),
            tol=_TOLERANCE * (near if records else closed),
        )
        return float(found)

    if records:
        quickly = sought(_COARSE)
        if quickly == least or epsilon_of(scaled(quickly), delta) >= _WELL_USED * target:
            return quickly
    return sought(_FINE)


def _gaussian_multiplier(target: float, delta: float) -> float:
    """Return the noise multiplier of one Gaussian mechanism of this epsilon and delta (Balle and Wang, 2018)."""

    def excess(log_multiplier: float) -> float:
        multiplier = math.exp(log_multiplier)
        half = 1 / (2 * multiplier)
        lower = math.exp(target + float(scipy.special.log_ndtr(-half - target * multiplier)))
        return float(scipy.special.ndtr(half - target * multiplier)) - lower - delta

    return math.exp(float(scipy.optimize.brentq(excess, math.log(1e-3), math.log(1e6))))


def epsilon_of(releases: Sequence[Release], delta: float, grid: float = _FINE) -> float:
    """Return the epsilon of everything released, by ``dp-accounting`` with privacy losses on a grid so fine."""
    _, pld = _library()
    accountant = pld.PLDAccountant(value_discretization_interval=grid)
    if releases:
        accountant.compose(_event(releases))
    return float(accountant.get_epsilon(delta))


def _event(releases: Sequence[Release]) -> Any:
    """Return what was released, for ``dp-accounting``.

    Gaussian mechanisms without sampling are together one Gaussian mechanism, of 1/z^2 = sum of 1/z_i^2 (Dong, Roth and
    Su, 2022), which is quicker to compute with than many.
    """
    dp, _ = _library()
    squares = sum(one.times / one.multiplier**2 for one in releases if one.sampling >= 1)
    events = [dp.GaussianDpEvent(squares**-0.5)] if squares else []
    for one in releases:
        if one.sampling < 1:
            single = dp.PoissonSampledDpEvent(one.sampling, dp.GaussianDpEvent(one.multiplier))
            events.append(dp.SelfComposedDpEvent(single, one.times))
    return dp.ComposedDpEvent(events) if len(events) > 1 else events[0]


def _library() -> tuple[Any, Any]:
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError:
        raise InputError("differential privacy needs a package that counts it: pip install 'btfl[privacy]'") from None
    return dp_accounting, pld
