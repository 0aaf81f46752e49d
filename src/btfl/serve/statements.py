"""The statements that a request needs, compiled once for the database in use."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from btfl.serve.schema import SIGNAL_COLUMNS, requests, streams


class Row(NamedTuple):
    """What is known of a stream before a request."""

    id: int
    version: int
    identity: str
    bundle: str
    state: bytes
    ended: bool
    updated: float


class Compiled:
    """A statement as the driver takes it: SQLAlchemy's own way to it costs more than the statement."""

    def __init__(self, statement: sa.Executable, engine: sa.Engine) -> None:
        compiled: Any = statement.compile(dialect=engine.dialect)  # type: ignore[attr-defined]
        self.text, names = str(compiled), compiled.positiontup
        self._pick = None if names is None else itemgetter(*names) if len(names) > 1 else lambda told: (told[names[0]],)

    def values(self, told: dict[str, Any]) -> Any:
        """Return values by name as the driver takes them: in their places, or by name where it asks for that."""
        return told if self._pick is None else self._pick(told)

    def run(self, cursor: Any, told: dict[str, Any]) -> None:
        """Run it with values by name."""
        cursor.execute(self.text, self.values(told))


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
        "find": sa.select(*(streams.c[name] for name in Row._fields)).where(named),
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


def compile_statements(engine: sa.Engine) -> dict[str, Compiled]:
    """Return what a request needs, by what it does."""
    return {name: Compiled(statement, engine) for name, statement in _HOT.items()}
