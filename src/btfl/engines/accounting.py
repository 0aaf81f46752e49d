"""One account of privacy for a run: what was released with which noise, and what that comes to.

Privacy loss is computed by Google's ``dp-accounting`` from the distribution of the loss (PLD), never by hand. Sampling
counts in a client's favour only where clients are drawn independently of each other (Poisson), as full privacy does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import scipy  # loads what is used when it is first used, so that starting a training is quick

from btfl.errors import InputError, StorageError
from btfl.recipes.settings import TrainingSettings
from btfl.storage import read_described, sealed, write_json

KIND, VERSION = "btfl privacy account", 1
_LEAST_MULTIPLIER, _TOLERANCE = 0.4, 1e-3


@dataclass(frozen=True)
class Release:
    """Something that was released: a Gaussian mechanism, so many times."""

    what: str
    multiplier: float
    """Standard deviation of the noise, in units of the sensitivity."""
    sampling: float = 1.0
    """Probability with which a client takes part; 1: all do."""
    times: int = 1

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"what": self.what, "multiplier": self.multiplier, "sampling": self.sampling, "times": self.times}


@dataclass(frozen=True)
class Plan:
    """The noise of a run, chosen before it begins.

    Parameters
    ----------
    training : noise multiplier of a round; None: training is not private
    summary : noise multiplier of the summary
    sampling : probability with which a client takes part in a round
    """

    training: float | None
    summary: float
    sampling: float

    def releases(self, rounds: int) -> tuple[Release, ...]:
        """Return what a whole run of so many rounds releases."""
        summary = Release("summary", self.summary)
        if self.training is None or not rounds:
            return (summary,)
        return Release("training", self.training, self.sampling, rounds), summary


def make_plan(settings: TrainingSettings, rounds: int) -> Plan:
    """Choose the least noise with which a run stays within the epsilon and delta of its settings.

    The summary gets a share of the budget in the sense of 1 / multiplier^2, which is what adds up over releases.
    """
    # a record changes a client's update to any other one: no statement about sampling is made for it
    sampled = settings.privacy_unit == "client" and settings.participation < 1
    sampling = settings.participation if sampled else 1.0
    if settings.privacy == "full" and rounds:
        ratio = ((1 - settings.summary_share) / settings.summary_share / (rounds * sampling**2)) ** 0.5

        def plan(multiplier: float) -> Plan:
            return Plan(multiplier, multiplier * ratio, sampling)
    else:

        def plan(multiplier: float) -> Plan:
            return Plan(None, multiplier, sampling)

    multiplier = _calibrated(settings.epsilon, settings.delta, tuple(plan(1.0).releases(rounds)))
    return plan(multiplier)


@lru_cache(maxsize=64)
def _calibrated(target: float, delta: float, unit: tuple[Release, ...]) -> float:
    """Return the factor for all multipliers with which these releases stay within the target.

    It is sought above ``_LEAST_MULTIPLIER``: with less noise than that the numbers promise nothing, and take long.
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
    if epsilon_of(scaled(least), delta) <= target:
        return least
    bracket = dp.LowerEndpointAndGuess(least, max(closed * unit[0].sampling, 2 * least))
    found = dp.calibrate_dp_mechanism(
        pld.PLDAccountant, lambda factor: _event(scaled(factor)), target, delta, bracket, tol=_TOLERANCE * closed
    )
    return float(found)


def _gaussian_multiplier(target: float, delta: float) -> float:
    """Return the noise multiplier of one Gaussian mechanism of this epsilon and delta (Balle and Wang, 2018)."""

    def excess(log_multiplier: float) -> float:
        multiplier = math.exp(log_multiplier)
        half = 1 / (2 * multiplier)
        lower = math.exp(target + float(scipy.special.log_ndtr(-half - target * multiplier)))
        return float(scipy.special.ndtr(half - target * multiplier)) - lower - delta

    return math.exp(float(scipy.optimize.brentq(excess, math.log(1e-3), math.log(1e6))))


def epsilon_of(releases: Sequence[Release], delta: float) -> float:
    """Return the epsilon of everything released, by ``dp-accounting``."""
    _, pld = _library()
    accountant = pld.PLDAccountant()
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


class Account:
    """What a run has released so far, in a file of its folder if it has one; written before anything is released."""

    def __init__(self, path: Path | None, settings: TrainingSettings) -> None:
        self._path, self._settings = path, settings
        self._releases: list[dict[str, Any]] = []
        if path is not None and path.exists():
            found = read_described(path, KIND, VERSION, ("releases",))["releases"]
            if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
                raise StorageError(f"{path} does not say what was released")
            self._releases = found

    def note(self, what: str, multiplier: float, sampling: float = 1.0) -> None:
        """Write down a release; the same one again, with the same noise, costs nothing more."""
        one = {"what": what, "multiplier": multiplier, "sampling": sampling}
        if self._settings.privacy_noise == "seeded" and one in self._releases:
            return
        self._releases.append(one)
        if self._path is not None:
            content = {"releases": self._releases, "promise": self._settings.promise()}
            write_json(self._path, sealed({"kind": KIND, "version": VERSION, **content}))

    def spent(self) -> float:
        """Return the epsilon that everything so far comes to, at the delta of the settings."""
        counted: dict[tuple[float, float], int] = {}
        for one in self._releases:
            key = float(one["multiplier"]), float(one["sampling"])
            counted[key] = counted.get(key, 0) + 1
        releases = [Release("", *key, times=times) for key, times in counted.items()]
        return epsilon_of(releases, self._settings.delta)
