"""Work spread over processes, with results in order: one torch thread each, and the data's memory shared by all.

Each worker has a pipe of its own. The pool of the standard library has one for all, and a worker that is killed while
it writes to it, for want of memory say, leaves the parent waiting for the rest of the message for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from btfl.checks import printable
from btfl.errors import BtflError, InputError
from btfl.models.threads import one_thread

if sys.platform == "linux":  # forked workers see the parent's arrays without a copy of them
    from multiprocessing.context import ForkProcess as Process
else:
    from multiprocessing.context import SpawnProcess as Process

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
        self._count, self._function, self._fixed = workers, function, fixed
        self._workers: list[_Worker] = []
        self._deaths = 0

    def __enter__(self) -> WorkerPool[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(self, items: Sequence[Item]) -> Iterator[Result]:
        """Return the results in the order of the items."""
        if self._count == 1:
            with one_thread():
                for item in items:
                    yield self._function(*self._fixed, item)
            return
        to_do, done = deque(range(len(items))), dict[int, Result]()
        try:
            for turn in range(len(items)):
                self._hand_out(to_do, items, turn)
                while turn not in done:
                    self._take_in(to_do, done)
                    self._hand_out(to_do, items, turn)
                yield done.pop(turn)
        finally:
            if any(worker.place is not None for worker in self._workers):
                self.close()  # it was left early: what they are at is of no use to anyone

    def _hand_out(self, to_do: deque[int], items: Sequence[Item], turn: int) -> None:
        """Return idle workers the next items, but not those whose results would have to wait for long."""
        while len(self._workers) < self._count:
            self._workers.append(_Worker(self._function, self._fixed))
        for worker in self._workers:
            if worker.place is None and to_do and to_do[0] <= turn + 2 * self._count:
                place = to_do.popleft()
                worker.begin(place, items[place])

    def _take_in(self, to_do: deque[int], done: dict[int, Result]) -> None:
        """Wait until a worker is done, or dead: then its item is the next to be done."""
        busy = {worker.connection: worker for worker in self._workers if worker.place is not None}
        for connection in wait(list(busy)):
            worker = busy[connection]  # type: ignore[index]
            place = worker.place
            assert place is not None
            answer = worker.answer()
            if answer is None:
                self._deaths += 1
                if self._deaths > _MOST_DEATHS:
                    raise BtflError("worker processes keep dying; is there enough memory? Try fewer workers")
                worker.close()
                self._workers.remove(worker)
                to_do.appendleft(place)
                continue
            good, result = answer
            if not good:
                raise result
            done[place], self._deaths = result, 0

    def close(self) -> None:
        """Stop the workers, whatever they are at."""
        for worker in self._workers:
            worker.close()
        self._workers = []


class _Worker:
    """A process that does one item at a time."""

    def __init__(self, function: Callable[..., Any], fixed: tuple[Any, ...]) -> None:
        _import_for_all()
        self.connection, theirs = multiprocessing.Pipe()
        self.place: int | None = None
        """Of the item it is at."""
        self._process = Process(target=_serve, args=(theirs, function, fixed), daemon=True)
        self._process.start()
        theirs.close()  # nobody else has it now, so that its end is seen here

    def begin(self, place: int, item: Any) -> None:
        self.place = place
        with suppress(ConnectionError):  # it is dead, which the wait for its result will find
            self.connection.send(item)

    def answer(self) -> tuple[bool, Any] | None:
        """Return (true, the result of its item) or (false, what it raised), or nothing if it died."""
        self.place = None
        try:
            answer: tuple[bool, Any] = self.connection.recv()
        except (EOFError, OSError):  # before, or half-way through
            return None
        except Exception as error:  # an exception of someone's own that cannot be made again from its arguments
            why = f"{type(error).__name__}: {printable(error, 200)}"
            return False, BtflError(
                f"what a worker process sent cannot be read ({why}). Try one worker to see its cause"
            )
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


@cache
def _import_for_all() -> None:
    """Make torch import here what it imports at the first optimiser: else each forked worker spends seconds on it."""
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()


def _serve(connection: Connection, function: Callable[..., Any], fixed: tuple[Any, ...]) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and has the say
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    while True:
        item = connection.recv()
        try:
            connection.send((True, function(*fixed, item)))
        except Exception as error:
            error.add_note("in a worker process:\n" + traceback.format_exc())
            connection.send((False, error))


def _leave_with_parent() -> None:
    """End this worker when its parent is gone, killed perhaps: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
