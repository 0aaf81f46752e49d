"""The tables of the server's database, and how a connection to it is made: SQLite or PostgreSQL."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.exc import SQLAlchemyError

from btfl.errors import InputError, StorageError

_BIG = sa.BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts up in columns called INTEGER alone

metadata = MetaData()
SIGNAL_COLUMNS = ("e", "log_tau", "all_external", "strangeness")
"""What is kept of a request's trace."""


def _signals() -> list[Column[Any]]:
    return [Column(name, Float(53)) for name in SIGNAL_COLUMNS]


streams = Table(
    "btfl_streams",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=True),
    Column("tenant", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("sequence", Text, nullable=False),
    Column("version", _BIG, nullable=False),  # requests that changed it, over all its starts
    Column("identity", Text, nullable=False),  # method, settings and classes that the memory belongs to
    Column("bundle", Text, nullable=False),  # sha256
    Column("state", LargeBinary, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("samples", _BIG, nullable=False),  # since its last start
    Column("alarms", _BIG, nullable=False),  # that began, over all its starts
    Column("alarmed", Text, nullable=False),  # kinds of those that are on
    Column("turned", Float(53)),  # when that last changed
    *_signals(),
    Column("started", Float(53), nullable=False),
    Column("updated", Float(53), nullable=False),
    Index("btfl_streams_name", "tenant", "model", "sequence", unique=True),
    Index("btfl_streams_updated", "updated"),
)

requests = Table(
    "btfl_requests",
    metadata,
    Column("stream", _BIG, primary_key=True, autoincrement=False),
    Column("version", _BIG, primary_key=True, autoincrement=False),  # of the stream, after it
    Column("request", Text),  # the id that the sender gave it
    Column("digest", LargeBinary),  # of what it asked
    Column("answer", LargeBinary),  # for a sender that asks again
    Column("time", Float(53), nullable=False),
    Column("samples", Integer, nullable=False),
    Column("seen", _BIG, nullable=False),
    Column("alarmed", Text, nullable=False),
    Column("began", Text, nullable=False),  # kinds of alarms that began with it
    *_signals(),
    sqlite_with_rowid=False,
)
_has_id = requests.c.request.is_not(None)
Index(
    "btfl_requests_request",
    requests.c.stream,
    requests.c.request,
    unique=True,
    sqlite_where=_has_id,
    postgresql_where=_has_id,
)

tokens = Table(
    "btfl_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("may", Text, nullable=False),
    Column("models", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("expires", Float(53)),
)

calibrations = Table(
    "btfl_calibrations",
    metadata,
    Column("bundle", Text, primary_key=True),
    Column("method", Text, primary_key=True),
    Column("value", Text, nullable=False),
)


def open_engine(url: str, durability: str = "normal") -> sa.Engine:
    """Return an engine, with the tables made if they are not there; what fails is an error of ours."""
    sqlite = url.startswith("sqlite")
    if url.startswith("postgresql://"):
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        if sqlite:
            engine = sa.create_engine(url, paramstyle="qmark", connect_args={"timeout": 10.0})
            _prepare_sqlite(engine, durability)
        else:
            engine = sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5}, max_overflow=32)
        create_tables(engine)
    except ModuleNotFoundError as error:
        raise InputError(f"PostgreSQL needs {error.name}: pip install 'btfl[postgres]'") from None
    except SQLAlchemyError as error:
        raise StorageError(f"the database cannot be used: {_first_line(error)}") from None
    return engine


def create_tables(engine: sa.Engine) -> None:
    """Make the tables that are missing; workers that start together do so one after the other."""
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(72617466)"))
        metadata.create_all(connection)


def writing(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
    """Return a transaction that writes; in SQLite it waits for its turn when it begins, and not halfway."""
    return engine.execution_options(writes=True).begin()


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def _prepare_sqlite(engine: sa.Engine, durability: str) -> None:
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # we say where a transaction begins
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={'FULL' if durability == 'full' else 'NORMAL'}",
            "busy_timeout=10000",
            "foreign_keys=ON",
            "journal_size_limit=67108864",
            "wal_autocheckpoint=20000",  # the ledger does it sooner, beside the requests
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
