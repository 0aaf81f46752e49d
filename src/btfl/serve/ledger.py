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
from contextlib import suppress
from typing import Any, NamedTuple

import sqlalchemy as sa
from numpy.typing import NDArray

from btfl.checks import printable
from btfl.serve.answers import Answer, pack_answer, unpack_answer
from btfl.serve.model import Model, Step
from btfl.serve.refusal import RefusedError
from btfl.serve.schema import SIGNAL_COLUMNS, open_engine, requests, streams
from btfl.serve.tensors import InferRequest

TRIES = 200  # of a request whose stream others change at the same time
_PRUNE_EVERY = 64
_CACHED = 4096
_COUNTED_FOR = 5.0  # seconds
_CHECKPOINT_EVERY = 1.0  # seconds
_TOLD_EVERY = 0.25  # seconds between two changes of a stream's time: less than watchers look back (``watching.py``)


class _Compiled:
    """A statement as the driver takes it: SQLAlchemy's own way to it costs more than the statement."""

    def __init__(self, statement: sa.Executable, engine: sa.Engine) -> None:
        compiled: Any = statement.compile(dialect=engine.dialect)  # type: ignore[attr-defined]
        self._text, self._names = str(compiled), compiled.positiontup

    def run(self, cursor: Any, values: dict[str, Any]) -> None:
        """Run it with values by name."""
        cursor.execute(self._text, values if self._names is None else [values[name] for name in self._names])


class _Row(NamedTuple):
    id: int
    version: int
    identity: str
    bundle: str
    state: bytes
    ended: bool
    updated: float


class Taken(NamedTuple):
    """What became of a request."""

    answer: Answer
    step: Step | None
    """None: it had been answered before, and this is the same answer."""
    conflicts: int
    """How often somebody else changed the stream in between."""


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
        self._cache: OrderedDict[tuple[str, str, str], _Row] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._counts: dict[str, tuple[float, int]] = {}
        driver: Any = self.engine.dialect.dbapi
        self._driver_error, self._taken_already = driver.Error, driver.IntegrityError
        self._closing = threading.Event()
        if self.sqlite:
            threading.Thread(target=self._checkpoint, name="checkpoint", daemon=True).start()
        self._sql = {name: _Compiled(statement, self.engine) for name, statement in _HOT.items()}

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
        except (self._driver_error, sa.exc.SQLAlchemyError) as error:
            self._drop_connection()
            self._forget((tenant, model.name, asked.sequence))
            said = f"the database does not answer ({type(error).__name__}): send the request again, with the same id"
            raise RefusedError(503, said, {"Retry-After": "1"}) from error

    def _take(self, model: Model, tenant: str, asked: InferRequest, features: NDArray[Any], digest: bytes) -> Taken:
        key = tenant, model.name, asked.sequence
        for attempt in range(TRIES):
            row = self._cache.get(key) if self._alone and not attempt else self._read(key)
            if row is None and self._alone and not attempt:
                row = self._read(key)
            if row is not None and asked.id and (attempt or row.ended):
                stored = self._replay(row.id, asked, digest)
                if stored is not None:
                    return Taken(stored, None, attempt)
            state, memory = _memory_for(model, asked, row)
            if row is None:
                self._check_room(tenant)
            step = model.step(features, state)
            try:
                written = self._write(key, row, model, asked, digest, step, memory)
            except self._taken_already:
                self._connection().rollback()
                written = None  # the id was there, or somebody else began the stream: what is there decides
            if written is not None:
                return Taken(written, step, attempt)
            self._forget(key)
            if attempt > 2:
                time.sleep(min(0.0005 * attempt, 0.01))
        raise RefusedError(
            503, f"stream {printable(asked.sequence, 40)!r} is changed by too many at once", {"Retry-After": "1"}
        )

    def _write(
        self,
        key: tuple[str, str, str],
        row: _Row | None,
        model: Model,
        asked: InferRequest,
        digest: bytes,
        step: Step,
        memory: str,
    ) -> Answer | None:
        """Write in one transaction; None if somebody else has changed the stream."""
        now, began = time.time(), ",".join(dict.fromkeys(alarm.kind for alarm in step.alarms if alarm.begins))
        version = 1 if row is None else row.version + 1
        answer = Answer(step.outputs, version, memory, step.alarmed, began)
        signals = {name: step.means.get(name) for name in SIGNAL_COLUMNS}
        values: dict[str, Any] = {
            "identity": model.identity,
            "bundle": model.sha256,
            "state": step.state,
            "ended": asked.end,
            "samples": step.seen,
            "began_now": sum(alarm.begins for alarm in step.alarms),
            "alarmed": step.alarmed,
            "turned": now if step.alarms else None,
            **signals,
            "updated": now,
            "started": now if asked.start or row is None else None,
        }
        connection = self._connection()
        cursor = connection.cursor()
        if self.sqlite:
            cursor.execute("BEGIN IMMEDIATE")
        if row is None:
            names = dict(zip(("tenant", "model", "sequence"), key, strict=True))
            self._sql["begin"].run(cursor, values | names)
            (stream,) = cursor.fetchone()
            self._count_one(key[0])
        else:
            stream = row.id
            values["of"], values["before"] = stream, row.version
            plain = memory == "continued" and not step.alarms and not asked.end and now - row.updated < _TOLD_EVERY
            if plain:
                values["updated"] = row.updated
            self._sql["go on" if plain else "update"].run(cursor, values)
            if cursor.rowcount != 1:
                connection.rollback()
                return None
        self._sql["note"].run(
            cursor,
            {
                "stream": stream,
                "version": version,
                "request": asked.id or None,
                "digest": digest if asked.id else None,
                "answer": pack_answer(answer) if asked.id else None,
                "time": now,
                "samples": step.samples,
                "seen": step.seen,
                "alarmed": step.alarmed,
                "began": began,
                **signals,
            },
        )
        if version % _PRUNE_EVERY == 0:
            self._sql["prune"].run(cursor, {"of": stream, "until": version - self._history})
        connection.commit()
        if self._alone:
            told = model.identity, model.sha256, step.state, asked.end, values["updated"]
            self._remember(key, _Row(stream, version, *told))
        return answer

    def _replay(self, stream: int, asked: InferRequest, digest: bytes) -> Answer | None:
        """Return the answer that a request with this id had; None if there was none."""
        found = self._one("replay", {"of": stream, "request": asked.id})
        if found is None:
            return None
        if bytes(found[0]) != digest:
            raise RefusedError(409, f"id {asked.id!r} was used for another request on this stream: give each its own")
        return unpack_answer(bytes(found[1]))

    def _read(self, key: tuple[str, str, str]) -> _Row | None:
        found = self._one("find", dict(zip(("tenant", "model", "sequence"), key, strict=True)))
        if found is None:
            return None
        id_, version, identity, bundle, state, ended, updated = found
        return _Row(id_, version, identity, bundle, bytes(state), bool(ended), updated)

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

    def _remember(self, key: tuple[str, str, str], row: _Row) -> None:
        with self._cache_lock:
            self._cache[key] = row
            self._cache.move_to_end(key)
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)

    def _forget(self, key: tuple[str, str, str]) -> None:
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


def _memory_for(model: Model, asked: InferRequest, row: _Row | None) -> tuple[bytes, str]:
    """Return the memory that a request is judged with, and what that is: new, continued, kept or reset.

    ``kept`` and ``reset`` tell of a bundle that was renewed: the memory is kept if the method, its settings and the
    number of classes are the same and it takes the memory back, else the stream begins again.
    """
    if asked.start:
        return model.fresh, "new"
    if row is None or row.ended:
        raise RefusedError(
            400,
            f"inference request for sequence {printable(asked.sequence, 40)} to model '{model.name}' must specify the "
            "START flag on the first request of the sequence (sequence_start)",
        )
    if row.identity != model.identity:
        return model.fresh, "reset"
    if row.bundle == model.sha256:
        return row.state, "continued"
    return (row.state, "kept") if model.can_restore(row.state) else (model.fresh, "reset")


def _statements() -> dict[str, sa.Executable]:
    signals: dict[str, Any] = {name: sa.bindparam(name) for name in SIGNAL_COLUMNS}
    shared: dict[str, Any] = {
        **{
            name: sa.bindparam(name)
            for name in ("identity", "bundle", "state", "ended", "samples", "alarmed", "updated")
        },
        **signals,
    }
    named = sa.and_(*(streams.c[name] == sa.bindparam(name) for name in ("tenant", "model", "sequence")))
    began: Any = sa.bindparam("began_now", type_=sa.Integer)
    of: Any = sa.bindparam("of")
    turned = sa.func.coalesce(sa.bindparam("turned", type_=sa.Float(53)), streams.c.turned)
    started = sa.func.coalesce(sa.bindparam("started", type_=sa.Float(53)), streams.c.started)
    return {
        "find": sa.select(*(streams.c[name] for name in _Row._fields)).where(named),
        "count": sa.select(sa.func.count()).select_from(streams).where(streams.c.tenant == sa.bindparam("tenant")),
        "begin": sa.insert(streams)
        .values(
            version=sa.literal_column("1"),
            alarms=began,
            turned=sa.bindparam("turned"),
            started=sa.bindparam("started"),
            **{name: sa.bindparam(name) for name in ("tenant", "model", "sequence")},
            **shared,
        )
        .returning(streams.c.id),
        "update": sa.update(streams)
        .values(
            version=streams.c.version + sa.literal_column("1"),
            alarms=streams.c.alarms + began,
            turned=turned,
            started=started,
            **shared,
        )
        .where(streams.c.id == of, streams.c.version == sa.bindparam("before")),
        "go on": sa.update(streams)
        .values(
            version=streams.c.version + sa.literal_column("1"),
            **{name: shared[name] for name in ("state", "samples", *SIGNAL_COLUMNS)},
        )
        .where(streams.c.id == of, streams.c.version == sa.bindparam("before")),
        "note": sa.insert(requests),
        "prune": sa.delete(requests).where(requests.c.stream == of, requests.c.version <= sa.bindparam("until")),
        "replay": sa.select(requests.c.digest, requests.c.answer).where(
            requests.c.stream == of, requests.c.request == sa.bindparam("request")
        ),
    }


_HOT = _statements()
"""What a request needs, as Core statements; each is compiled once for the database in use."""
