"""Where the bundles go that clients make at the end: into memory, or to disk one by one."""

from __future__ import annotations

from collections.abc import Sequence

from btfl.core.client import ClientOutcome, Weights
from btfl.engines.base import Job
from btfl.runs.checkpoint import RunFolder
from btfl.runs.trained import FederationWriter, TrainedFederation


class Keeping:
    """What clients are left with, in memory."""

    def __init__(self, clients: int) -> None:
        self._outcomes: list[ClientOutcome | None] = [None] * clients

    def add(self, client: int, outcome: ClientOutcome | None) -> None:
        """Keep what one client is left with; None: it keeps that on its own device, or has failed."""
        self._outcomes[client] = outcome

    @property
    def outcomes(self) -> Sequence[ClientOutcome | None]:
        """What all are left with."""
        return tuple(self._outcomes)

    def aside(self, job: Job, private: Weights) -> Weights:
        """Keep what a client has made of its own until it concludes."""
        return private

    def finish(self, federation: TrainedFederation) -> None:
        """Do nothing: there is no folder to complete."""


class KeptOnDisk(Keeping):
    """The same, on disk one by one: memory does not grow with the clients."""

    def __init__(self, run: RunFolder, rounds: int, clients: int) -> None:
        self._run, self._writer = run, FederationWriter(run.files.final.folder, rounds)
        for client in range(clients):
            self._writer.add(client, None)

    def add(self, client: int, outcome: ClientOutcome | None) -> None:
        """Save what one client is left with."""
        self._writer.add(client, outcome)

    @property
    def outcomes(self) -> Sequence[ClientOutcome | None]:
        """What all are left with, read when it is asked for."""
        return self._writer.outcomes

    def finish(self, federation: TrainedFederation) -> None:
        """Make the federation count."""
        self._writer.finish(federation)
        self._run.clear_aside()

    def aside(self, job: Job, private: Weights) -> Weights:
        """Keep it on disk."""
        return self._run.put_aside(job.client, job.round, private)
