"""Clients that fail: each is named, left out, and the rest go on, as long as enough of them are left.

An upload is checked before it is added to anything, by ``engines/door.py``. Nothing that a client sends stops the
server: what cannot be checked is refused, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from btfl.checks import printable
from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.errors import BtflError, TooFewClientsError
from btfl.knobs import Settings, knob

R = TypeVar("R", bound=Result)
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
    most_samples: int = knob(10_000_000, "Refuse a client that claims more samples than this.", least=1, most=2**40)
    bind_nodes: bool = knob(
        False,
        "On Flower: keep a client to the first node that says it is it, for the whole run. A node's id stands for its "
        "key where SuperNodes have keys; without keys, a SuperNode that is started again is another node.",
    )
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


def usable(
    session: Session,
    broadcast: Broadcast,
    jobs: Sequence[Job],
    kinds: tuple[type[R], ...],
    check: Callable[[Job, R], None],
    settings: FaultSettings,
    warn: Callable[[Job, str], None],
) -> Iterator[tuple[Job, R]]:
    """Return the usable results in the order of the jobs; at the end, stop the run if they were too few."""
    failures: list[str] = []
    for job, result in session.run(broadcast, jobs):
        reason = _refusal(job, result, kinds, check)
        if reason is None:
            yield job, result  # type: ignore[misc]  # checked above
            continue
        log.warning("client %d is left out of %s: %s", job.client, _occasion(job), reason)
        failures.append(f"client {job.client}: {reason}")
        warn(job, f"client {job.client} is left out: {reason}")
    answered = len(jobs) - len(failures)
    if not jobs:  # with privacy, clients are drawn independently of each other: once in a while, none is
        return
    if answered < settings.needed(len(jobs)):
        quoted = "; ".join(failures[:_NAMED])
        more = f"; and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
        raise TooFewClientsError(
            f"{_occasion(jobs[0])}: only {answered} of {len(jobs)} clients gave a usable answer, and "
            f"{settings.needed(len(jobs))} are needed (min_share = {settings.min_share:g}). {quoted}{more}. "
            "What was finished before is kept in the run's folder, if it has one: start it again to go on from there"
        )


def _refusal(job: Job, result: object, kinds: tuple[type[R], ...], check: Callable[[Job, R], None]) -> str | None:
    """Return why a result cannot be used, in a line; None if it can."""
    if isinstance(result, Failure):
        return result.reason
    if not isinstance(result, kinds):
        return f"it answered {job.task} with {printable(type(result).__name__, 80)}"
    try:
        check(job, result)
    except BtflError as error:
        return printable(f"what it sent was refused: {error}")
    except Exception as error:  # whatever a stranger's numbers may cause
        return printable(f"what it sent cannot be checked: {type(error).__name__}: {error}")
    return None


def _occasion(job: Job) -> str:
    return f"round {job.round}" if job.task == "train" else f"the end of the run ({job.task})"
