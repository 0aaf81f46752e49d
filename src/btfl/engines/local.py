"""Training on one machine: in this process, or over a pool of processes that share the data's memory."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from btfl.engines.base import Broadcast, Job, Result, Session, perform
from btfl.engines.data import FederatedData
from btfl.errors import BtflError, InputError
from btfl.recipes.base import Recipe

_MOST_RESTARTS = 5  # of the pool in a row, without one job finishing in between


@dataclass(frozen=True)
class LocalEngine:
    """One process, or several with one torch thread each: on a CPU that is the fast way to use its cores."""

    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"at least one worker is needed, not {self.workers}")

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        """Start the workers; stop them at the end, whatever happens."""
        if self.workers == 1:
            with _one_thread():
                yield _InProcess(recipe, data)
            return
        pool = _Pool(recipe, data, self.workers)
        try:
            yield pool
        finally:
            pool.close()


class _InProcess:
    def __init__(self, recipe: Recipe, data: FederatedData) -> None:
        self._recipe, self._data = recipe, data

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        for job in jobs:
            yield job, perform(self._recipe, self._data, broadcast, job)


class _Pool:
    """A pool that replaces workers that die, and holds no more results than a few for each worker."""

    def __init__(self, recipe: Recipe, data: FederatedData, workers: int) -> None:
        self._start = (recipe, data)
        self._workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        done, deaths = 0, 0
        while done < len(jobs):
            try:
                for result in self._in_order(broadcast, jobs[done:]):
                    yield jobs[done], result
                    done, deaths = done + 1, 0
            except BrokenProcessPool:
                # A worker was killed. What it was doing is done again, with the same outcome; nothing was kept of it.
                self.close()
                deaths += 1
                if deaths > _MOST_RESTARTS:
                    raise BtflError(
                        f"worker processes keep dying while client {jobs[done].client} is at work; "
                        "is there enough memory? Try fewer workers"
                    ) from None

    def _in_order(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[Result]:
        executor = self._running()
        ahead: list[Future[Result]] = []
        for job in jobs:
            ahead.append(executor.submit(_work, broadcast, job))
            if len(ahead) > 2 * self._workers:
                yield ahead.pop(0).result()
        for future in ahead:
            yield future.result()

    def _running(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Forked workers see the parent's images without a copy of them.
            method = "fork" if sys.platform == "linux" else "spawn"
            self._executor = ProcessPoolExecutor(
                self._workers, multiprocessing.get_context(method), initializer=_begin, initargs=self._start
            )
        return self._executor

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


_recipe_and_data: tuple[Recipe, FederatedData] | None = None  # of a worker process


def _begin(recipe: Recipe, data: FederatedData) -> None:
    global _recipe_and_data
    torch.set_num_threads(1)
    _recipe_and_data = recipe, data


def _work(broadcast: Broadcast, job: Job) -> Result:
    assert _recipe_and_data is not None
    return perform(*_recipe_and_data, broadcast, job)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
