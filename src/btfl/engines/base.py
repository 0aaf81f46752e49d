"""What an engine is: a place where clients do their work. The rounds themselves are the same for all engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from btfl.checks import printable
from btfl.core.calibration import Calibration
from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import FederatedData
from btfl.engines.provenance import stamped
from btfl.errors import BtflError
from btfl.recipes.base import Description, Recipe, Update
from btfl.runs.checkpoint import StoredWeights


@dataclass(frozen=True)
class Kept:
    """The client has made its bundle and keeps it on its own device: the server never sees it."""


@dataclass(frozen=True)
class Failure:
    """Stands in place of a result: the client died, was too slow, or could not do its work."""

    reason: str
    """In a line; what a client says of itself is cut to a length, and control characters are escaped."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))


Result = Update | Description | Calibration | ClientOutcome | Kept


@dataclass(frozen=True, eq=False)
class Job:
    """One client's work: which of the recipe's functions, on what."""

    task: Literal["train", "describe", "calibrate", "conclude"]
    client: int
    round: int
    private: Weights
    since: int = 0
    """The round after which training was begun again: what a client keeps of its own from then or before does not
    count."""


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server sends to every client of a round."""

    shared: Weights
    everyone: Summary | None = None


class Session(Protocol):
    """An engine at work."""

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        """Do the jobs, in any order, and give a result or a failure for each in the order of the jobs."""


class Engine(Protocol):
    """A place where clients work."""

    def open(self, recipe: Recipe, data: FederatedData) -> AbstractContextManager[Session]:
        """Get ready to work on a federation."""


def perform(recipe: Recipe, data: FederatedData, broadcast: Broadcast, job: Job) -> Result:
    """Do one job: what a client's own process does, wherever it runs."""
    client_data = data.of(job.client, job.round)
    if job.task == "train":
        update = recipe.train(job.round, broadcast.shared, job.private, client_data)
        # with privacy for training, neither how much it has nor how well it does leaves the client
        return replace(update, samples=1, metrics={}) if recipe.settings.privacy == "full" else update
    if job.task == "describe":
        return recipe.describe(broadcast.shared, job.private, client_data)
    assert broadcast.everyone is not None
    if job.task == "calibrate":
        return recipe.calibrate(broadcast.shared, job.private, client_data, broadcast.everyone)
    outcome = recipe.conclude(broadcast.shared, job.private, client_data, broadcast.everyone)
    return stamped(outcome, recipe, data, broadcast.shared)


def attempt(recipe: Recipe, data: FederatedData, broadcast: Broadcast, job: Job) -> Result | Failure:
    """Do one job; what btfl itself refuses (for example numbers that are not finite) is this client's failure.

    Any other exception is a mistake in a program, not in a client, and is not swallowed. Nor is it the client's failure
    if what the run keeps for it on disk cannot be read: that stops the run, which goes on when the disk does.
    """
    if isinstance(job.private, StoredWeights):
        job = replace(job, private=job.private.load())
    try:
        return perform(recipe, data, broadcast, job)
    except BtflError as error:
        return Failure(str(error))
