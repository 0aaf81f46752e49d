"""Work spread over processes, with results in order: one torch thread each, and the data's memory shared by all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

import torch

from btfl.errors import BtflError, InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_DEATHS = 5  # of workers in a row, without one result in between


class WorkerPool(Generic[Item, Result]):
    """Calls ``function(*fixed, item)`` in worker processes, or here if one worker is asked for.

    A worker that dies is replaced and its item done again. No more results are held than a few for each worker.
    """

    def __init__(self, workers: int, function: Callable[..., Result], *fixed: Any) -> None:
        if workers < 1:
            raise InputError(f"at least one worker is needed, not {workers}")
        self._workers, self._function, self._fixed = workers, function, fixed
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> WorkerPool[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, items: Sequence[Item]) -> Iterator[Result]:
        """Give the results in the order of the items."""
        if self._workers == 1:
            with one_thread():
                for item in items:
                    yield self._function(*self._fixed, item)
            return
        done, deaths = 0, 0
        while done < len(items):
            try:
                for result in self._in_order(items[done:]):
                    yield result
                    done, deaths = done + 1, 0
            except BrokenProcessPool:
                self.close()
                deaths += 1
                if deaths > _MOST_DEATHS:
                    raise BtflError("worker processes keep dying; is there enough memory? Try fewer workers") from None

    def _in_order(self, items: Sequence[Item]) -> Iterator[Result]:
        executor = self._running()
        ahead: deque[Future[Result]] = deque()
        for item in items:
            ahead.append(executor.submit(_work, item))
            if len(ahead) > 2 * self._workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def _running(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Forked workers see the parent's arrays without a copy of them.
            method = "fork" if sys.platform == "linux" else "spawn"
            _import_for_all()
            self._executor = ProcessPoolExecutor(
                self._workers,
                multiprocessing.get_context(method),
                initializer=_begin,
                initargs=(self._function, self._fixed),
            )
        return self._executor

    def close(self) -> None:
        """Stop the workers."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


@cache
def _import_for_all() -> None:
    """Make torch import here what it imports at the first optimiser: else each forked worker spends seconds on it."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()


_task: tuple[Callable[..., Any], tuple[Any, ...]] | None = None  # of a worker process
_busy = _stopped = False


def _begin(function: Callable[..., Any], fixed: tuple[Any, ...]) -> None:
    global _task
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, _stop)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _task = function, fixed


def _leave_with_parent() -> None:
    """End this worker when its parent is gone, killed perhaps: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _stop(*_: object) -> None:
    """At Ctrl-C leave the work at hand and take no more; the parent, which gets it too, has the say.

    Ending at once would be wrong: a worker that goes while it hands over a result leaves the parent waiting for ever
    for the rest of it.
    """
    global _stopped
    _stopped = True
    if _busy:
        raise KeyboardInterrupt


def _work(item: Any) -> Any:
    global _busy
    assert _task is not None
    if _stopped:
        raise KeyboardInterrupt
    function, fixed = _task
    _busy = True
    try:
        return function(*fixed, item)
    finally:
        _busy = False


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: small batches are slower with more, and sums could come out in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
