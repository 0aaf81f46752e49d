"""Training on one machine: in this process, or over a pool of processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from btfl.engines.base import Broadcast, Failure, Job, Result, Session, attempt
from btfl.engines.data import FederatedData
from btfl.engines.pool import WorkerPool
from btfl.recipes.base import Recipe


@dataclass(frozen=True)
class LocalEngine:
    """One process, or several with one torch thread each: on a CPU that is the fast way to use its cores."""

    workers: int = 1

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        """Start the workers; stop them at the end, whatever happens."""
        with WorkerPool[tuple[Broadcast, Job], Result | Failure](self.workers, _attempt, recipe, data) as pool:
            yield _LocalSession(pool)


class _LocalSession:
    def __init__(self, pool: WorkerPool[tuple[Broadcast, Job], Result | Failure]) -> None:
        self._pool = pool

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        yield from zip(jobs, self._pool.map([(broadcast, job) for job in jobs]), strict=True)


def _attempt(recipe: Recipe, data: FederatedData, item: tuple[Broadcast, Job]) -> Result | Failure:
    return attempt(recipe, data, *item)
