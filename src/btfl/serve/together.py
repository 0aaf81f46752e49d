"""Requests that are there at once, written in one transaction: its end costs as much as the rest of a small request.

Each is computed when its turn comes, on the memory that those before it leave; all are written when the event loop has
been through what it had read, and answered after that. So an answer still means that the memory is in the database. If
anything stands in the way (an id that was there already, a stream that another worker has changed) nothing of it is
written, and each is taken by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from numpy.typing import NDArray

from btfl.serve.changes import Change, Key, Taken
from btfl.serve.ledger import Ledger
from btfl.serve.model import Model
from btfl.serve.refusal import RefusedError
from btfl.serve.statements import Row
from btfl.serve.tensors import InferRequest

_Request = tuple[Model, str, InferRequest, NDArray[Any], bytes]


class _Waiting(NamedTuple):
    change: Change
    request: _Request
    done: asyncio.Future[Taken]


class Together:
    """Takes requests in groups, on the thread of one event loop.

    Parameters
    ----------
    ledger : where memories are; of SQLite, which does not make the loop wait
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: list[_Waiting] = []
        self._rows: dict[Key, Row] = {}  # as they will be

    async def take(
        self, model: Model, tenant: str, asked: InferRequest, features: NDArray[Any], digest: bytes
    ) -> Taken:
        """Answer a request on a stream, and remember it; takes and gives what ``Ledger.take`` does."""
        request = model, tenant, asked, features, digest
        try:
            change = self._ledger.prepare(model, tenant, asked, features, digest, self._rows)
        except self._ledger.errors as error:
            raise self._ledger.failed(error, ()) from error
        if change is None:
            return self._ledger.take(*request)
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._write)
        done: asyncio.Future[Taken] = loop.create_future()
        self._waiting.append(_Waiting(change, request, done))
        assert change.row is not None
        self._rows[change.key] = change.after(change.row.id)
        return await done

    def _write(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], {}
        try:
            written = self._ledger.write([one.change for one in waiting])
        except Exception as error:  # every sender is told, and the log of the server has it
            known = isinstance(error, self._ledger.errors)
            told = self._ledger.failed(error, [one.change.key for one in waiting]) if known else error
            for one in waiting:
                if not one.done.done():
                    one.done.set_exception(told)
            return
        for one in waiting:
            if one.done.done():  # the server stops, and nobody waits any more
                continue
            if written:
                one.done.set_result(Taken(one.change.answer, one.change.step, 0))
            else:
                self._take_alone(one)

    def _take_alone(self, one: _Waiting) -> None:
        try:
            one.done.set_result(self._ledger.take(*one.request))
        except RefusedError as refusal:
            one.done.set_exception(refusal)
