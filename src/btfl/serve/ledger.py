"""The memory of every stream, in a database: one transaction a request, and a retried request counts once.

A request is computed on the memory as it was read, and written only if nobody has changed it since (its version is
still the same); else it is read and computed again. So any number of workers may serve any stream. The answer of a
request that has an id is written in the same transaction: whoever sends the id again gets that answer, and the memory
stays as it is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from numpy.typing import NDArray

from btfl.checks import printable
from btfl.serve.answers import Answer, unpack_answer
from btfl.serve.changes import Change, Key, Taken, judge
from btfl.serve.model import Model
from btfl.serve.refusal import RefusedError
from btfl.serve.schema import open_engine, streams
from btfl.serve.statements import Row, compile_statements
from btfl.serve.tensors import InferRequest

TRIES = 200  # of a request whose stream others change at the same time
_PRUNE_EVERY = 64
_CACHED = 4096
_COUNTED_FOR = 5.0  # seconds
_CHECKPOINT_EVERY = 1.0  # seconds


class Ledger:
    """Memories of streams in a database.

    Parameters
    ----------
    url, durability : of the database
    history : requests of a stream that are remembered
    most_streams : of a tenant
    alone : whether no other process writes: memories are then read from the database once, and not before each request
    """

    def __init__(
        self, url: str, durability: str = "normal", history: int = 256, most_streams: int = 100_000, alone: bool = False
    ) -> None:
        self.engine = open_engine(url, durability)
        self.sqlite = self.engine.dialect.name == "sqlite"
        self._history, self._most_streams, self._alone = history, most_streams, alone
        self._local = threading.local()
        self._connections: list[Any] = []
        self._cache: OrderedDict[Key, Row] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._counts: dict[str, tuple[float, int]] = {}
        driver: Any = self.engine.dialect.dbapi
        self.errors: tuple[type[Exception], ...] = (driver.Error, sa.exc.SQLAlchemyError)
        """What a database that does not answer raises."""
        self._taken_already = driver.IntegrityError
        self._closing = threading.Event()
        if self.sqlite:
            threading.Thread(target=self._checkpoint, name="checkpoint", daemon=True).start()
        self._sql = compile_statements(self.engine)

    def close(self) -> None:
        """Close every connection; nobody may be using one."""
        self._closing.set()
        while self._connections:
            self._connections.pop().close()
        self._local = threading.local()
        self.engine.dispose()

    def _checkpoint(self) -> None:
        """Move what was written from SQLite's log to its file now and then, so that no request waits for the disk."""
        while not self._closing.wait(_CHECKPOINT_EVERY):
            with suppress(sa.exc.SQLAlchemyError), self.engine.connect() as connection:
                driver = connection.connection
                driver.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def ping(self) -> bool:
        """Return whether the database answers."""
        try:
            with self.engine.connect() as connection:
                connection.execute(sa.select(streams.c.id).limit(1)).all()
        except sa.exc.SQLAlchemyError:
            return False
        return True

    def take(self, model: Model, tenant: str, asked: InferRequest, features: NDArray[Any], digest: bytes) -> Taken:
        """Answer a request on a stream, and remember it; after a ``RefusedError`` nothing has changed."""
        try:
            return self._take(model, tenant, asked, features, digest)
        except self.errors as error:
            raise self.failed(error, [(tenant, model.name, asked.sequence)]) from error

    def _take(self, model: Model, tenant: str, asked: InferRequest, features: NDArray[Any], digest: bytes) -> Taken:
        key = tenant, model.name, asked.sequence
        for attempt in range(TRIES):
            row = self._read(key) if attempt else self._known(key)
            if row is not None and asked.id and (attempt or row.ended):
                stored = self._replay(row.id, asked, digest)
                if stored is not None:
                    return Taken(stored, None, attempt)
            change = self._judge(key, row, model, asked, features, digest)
            if self.write([change]):
                return Taken(change.answer, change.step, attempt)
            if attempt > 2:
                time.sleep(min(0.0005 * attempt, 0.01))
        raise RefusedError(
            503, f"stream {printable(asked.sequence, 40)!r} is changed by too many at once", {"Retry-After": "1"}
        )

    def prepare(
        self,
        model: Model,
        tenant: str,
        asked: InferRequest,
        features: NDArray[Any],
        digest: bytes,
        rows: Mapping[Key, Row],
    ) -> Change | None:
        """Return what a request changes on a stream that goes on; None if it is to be taken by itself.

        ``rows``: streams as they will be once what was prepared before is written.
        """
        key = tenant, model.name, asked.sequence
        row = rows.get(key) or self._known(key)
        if row is None or row.ended:
            return None
        return self._judge(key, row, model, asked, features, digest)

    def _judge(
        self, key: Key, row: Row | None, model: Model, asked: InferRequest, features: NDArray[Any], digest: bytes
    ) -> Change:
        if row is None and asked.start:
            self._check_room(key[0])
        return judge(key, row, model, asked, features, digest)

    def write(self, changes: Sequence[Change]) -> bool:
        """Write all of it in one transaction, or nothing if somebody else has changed one of the streams.

        Nothing is written either if an id was there already, or somebody else began a stream: what is there decides.
        """
        connection = self._connection()
        cursor = connection.cursor()
        if self.sqlite:
            cursor.execute("BEGIN IMMEDIATE")
        try:
            written = [self._apply(cursor, change) for change in changes]
        except self._taken_already:
            written = [None]
        if None in written:
            connection.rollback()
            for change in changes:
                self._forget(change.key)
            return False
        connection.commit()
        for change, stream in zip(changes, written, strict=True):
            if change.row is None:
                self._count_one(change.key[0])
            if self._alone and stream is not None:
                self._remember(change.key, change.after(stream))
        return True

    def _apply(self, cursor: Any, change: Change) -> int | None:
        """Write one change; return the stream's number, or None if somebody else has changed it."""
        self._sql[change.statement].run(cursor, change.values)
        if change.row is None:
            (stream,) = cursor.fetchone()
            change.note["stream"] = stream
        elif cursor.rowcount != 1:
            return None
        else:
            stream = change.row.id
        self._sql["note"].run(cursor, change.note)
        version = change.answer.version
        if version % _PRUNE_EVERY == 0:
            self._sql["prune"].run(cursor, {"of": stream, "until": version - self._history})
        return int(stream)

    def failed(self, error: Exception, keys: Iterable[Key]) -> RefusedError:
        """Drop what a failed database leaves behind, and return what its senders are told."""
        self._drop_connection()
        for key in keys:
            self._forget(key)
        said = f"the database does not answer ({type(error).__name__}): send the request again, with the same id"
        return RefusedError(503, said, {"Retry-After": "1"})

    def _replay(self, stream: int, asked: InferRequest, digest: bytes) -> Answer | None:
        """Return the answer that a request with this id had; None if there was none."""
        found = self._one("replay", {"of": stream, "request": asked.id})
        if found is None:
            return None
        if bytes(found[0]) != digest:
            raise RefusedError(409, f"id {asked.id!r} was used for another request on this stream: give each its own")
        return unpack_answer(bytes(found[1]))

    def _known(self, key: Key) -> Row | None:
        """Return a stream as it is in the database; where nobody else writes, that was noted."""
        return (self._cache.get(key) if self._alone else None) or self._read(key)

    def _read(self, key: Key) -> Row | None:
        found = self._one("find", dict(zip(("tenant", "model", "sequence"), key, strict=True)))
        if found is None:
            return None
        id_, version, identity, bundle, state, ended, updated = found
        return Row(id_, version, identity, bundle, bytes(state), bool(ended), updated)

    def _one(self, name: str, values: dict[str, Any]) -> Any:
        connection = self._connection()
        cursor = connection.cursor()
        self._sql[name].run(cursor, values)
        found = cursor.fetchone()
        if not self.sqlite:
            connection.rollback()  # ends the transaction that reading began
        return found

    def _connection(self) -> Any:
        """Return this thread's own connection, of the driver itself: SQLAlchemy's costs as much as the statements."""
        found = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self.engine.raw_connection()
            self._connections.append(found)
        return found

    def _drop_connection(self) -> None:
        found, self._local.connection = getattr(self._local, "connection", None), None
        if found is not None:
            self._connections.remove(found)
            found.invalidate()

    def _remember(self, key: Key, row: Row) -> None:
        with self._cache_lock:
            self._cache[key] = row
            self._cache.move_to_end(key)
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)

    def _forget(self, key: Key) -> None:
        with self._cache_lock:
            self._cache.pop(key, None)

    def _check_room(self, tenant: str) -> None:
        counted, number = self._counts.get(tenant, (0.0, 0))
        if time.monotonic() - counted > _COUNTED_FOR:
            (number,) = self._one("count", {"tenant": tenant})
            self._counts[tenant] = time.monotonic(), number
        if number >= self._most_streams:
            raise RefusedError(429, f"there are {number} streams, and no more are allowed: end and delete some")

    def _count_one(self, tenant: str) -> None:
        counted, number = self._counts[tenant]
        self._counts[tenant] = counted, number + 1
