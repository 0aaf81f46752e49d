"""Clients that fail: each is named, left out, and the rest go on, as long as enough of them are left.

An upload is checked before it is added to anything: names and shapes against the model's own, every number finite and
within bounds, statistics within what they can be. A client can still send wrong numbers that look right; averaging
that withstands liars is another matter, and not tried here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.errors import InputError, TooFewClientsError
from btfl.knobs import Settings, knob
from btfl.recipes.base import Description, Recipe, Update

R = TypeVar("R", bound=Result)
Shapes = Mapping[str, tuple[int, ...]]
log = logging.getLogger(__name__)

_NAMED = 3  # failures that an error quotes before it only counts


@dataclass(frozen=True)
class FaultSettings(Settings):
    """When a client has failed, and how many may."""

    min_share: float = knob(
        0.5, "Stop if less than this share of the clients asked returns a usable answer.", above=0, most=1
    )
    time_limit: float = knob(600.0, "Seconds a client has for an answer, where the engine can tell (Flower).", above=0)
    largest: float = knob(1e9, "Refuse a weight beyond this, in absolute value.", above=0)
    smallest_cohort: int = knob(2, "Never send sums over fewer clients' data than this; see docs/privacy.md.", least=2)

    def needed(self, asked: int) -> int:
        """Return how many usable answers are enough."""
        return max(math.ceil(self.min_share * asked - 1e-9), 1)

    def check_cohort(self, clients: int) -> None:
        """Refuse to send sums that are made of too few clients' data, and warn where each can find out the other's."""
        if clients < self.smallest_cohort:
            raise TooFewClientsError(
                f"everyone's sums would be those of {clients} client{'s' * (clients != 1)}, and smallest_cohort = "
                f"{self.smallest_cohort} are needed before anyone may see them. Nothing was sent; start the run again "
                "when more can answer"
            )
        if clients == 2:
            log.warning(
                "everyone's sums are made of two clients' data: each can work out the other's (docs/privacy.md); set "
                "smallest_cohort higher where that matters"
            )


def check_update(update: Update, shapes: Shapes, largest: float) -> None:
    """Refuse an update that cannot be averaged with others, with a sentence that says why."""
    samples = update.samples
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
        raise InputError(f"the number of samples must be a whole number above 0, not {samples!r}")
    check_arrays(update.upload, shapes)
    for name, array in update.upload.items():
        top = max(array.max(initial=0.0), -array.min(initial=0.0))
        if top > largest:
            raise InputError(f"{name} is out of range: up to {top:.3g}, the limit is {largest:g}")
    for name, array in update.private.items():
        _check_finite(f"the client's own {name}", array)
    for name, value in update.metrics.items():
        if not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise InputError(f"training has not stayed finite: its {name} is {value!r}")


def check_description(description: Description, recipe: Recipe) -> None:
    """Refuse statistics that no data could give."""
    for name, array in description.summary.arrays.items():
        _check_finite(name, array)
    recipe.check_summary(description.summary)
    for name, private in description.private.items():
        _check_finite(f"the client's own {name}", private)


def check_arrays(arrays: Mapping[str, NDArray[Any]], shapes: Shapes) -> None:
    """Refuse arrays that are missing, unknown, of another shape, or not finite."""
    if missing := sorted(set(shapes) - set(arrays)):
        raise InputError(f"missing: {', '.join(missing[:_NAMED])}")
    if unknown := sorted(set(arrays) - set(shapes)):
        raise InputError(f"not asked for: {', '.join(unknown[:_NAMED])}")
    for name, array in arrays.items():
        _check_finite(name, array)
        if array.shape != shapes[name]:
            raise InputError(f"{name} has the shape {array.shape}, not {shapes[name]}")


def _check_finite(name: str, array: object) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise InputError(f"{name} is not an array of floating-point numbers")
    # the largest and the smallest are finite exactly if all are, and need no array of their own
    if not (math.isfinite(array.max(initial=0.0)) and math.isfinite(array.min(initial=0.0))):
        raise InputError(f"{name} holds NaN or infinite values")


def usable(
    session: Session,
    broadcast: Broadcast,
    jobs: Sequence[Job],
    kinds: tuple[type[R], ...],
    check: Callable[[R], None],
    settings: FaultSettings,
    warn: Callable[[Job, str], None],
) -> Iterator[tuple[Job, R]]:
    """Return the usable results in the order of the jobs; at the end, stop the run if they were too few."""
    failures: list[str] = []
    for job, result in session.run(broadcast, jobs):
        reason = None
        if isinstance(result, Failure):
            reason = result.reason
        else:
            assert isinstance(result, kinds)
            try:
                check(result)
            except InputError as error:
                reason = f"what it sent was refused: {error}"
        if reason is None:
            yield job, result  # type: ignore[misc]  # checked above
            continue
        log.warning("client %d is left out of %s: %s", job.client, _occasion(job), reason)
        failures.append(f"client {job.client}: {reason}")
        warn(job, f"client {job.client} is left out: {reason}")
    answered = len(jobs) - len(failures)
    if answered < settings.needed(len(jobs)):
        quoted = "; ".join(failures[:_NAMED])
        more = f"; and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
        raise TooFewClientsError(
            f"{_occasion(jobs[0])}: only {answered} of {len(jobs)} clients gave a usable answer, and "
            f"{settings.needed(len(jobs))} are needed (min_share = {settings.min_share:g}). {quoted}{more}. "
            "What was finished before is kept in the run's folder, if it has one: start it again to go on from there"
        )


def _occasion(job: Job) -> str:
    return f"round {job.round}" if job.task == "train" else f"the end of the run ({job.task})"
