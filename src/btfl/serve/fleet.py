"""Reading the database for people: the fleet, one stream's history, and what has changed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from btfl.serve.refusal import RefusedError
from btfl.serve.schema import requests, streams, writing
from btfl.serve.tokens import EVERYONE, Token

_SHOWN = (
    "id", "tenant", "model", "sequence", "version", "ended", "samples", "alarms", "alarmed", "turned", "e", "log_tau",
    "all_external", "strangeness", "started", "updated",
)  # fmt: skip
_ALARMED = (streams.c.alarmed != "") & ~streams.c.ended
_POINT = ("version", "time", "samples", "seen", "alarmed", "began", "e", "log_tau", "all_external", "strangeness")
MOST = 500


class Fleet:
    """What a bearer may see of the streams in a database."""

    def __init__(self, engine: sa.Engine, models: Sequence[str]) -> None:
        self._engine, self._models = engine, tuple(models)

    def _seen_by(self, token: Token) -> list[sa.ColumnElement[bool]]:
        limits: list[sa.ColumnElement[bool]] = []
        if token.tenant != EVERYONE:
            limits.append(streams.c.tenant == token.tenant)
        if EVERYONE not in token.models:
            limits.append(streams.c.model.in_([name for name in self._models if token.sees_model(name)]))
        return limits

    def totals(self, token: Token) -> dict[str, int]:
        """Return how many streams and samples there are, and how many streams that go on are alarmed."""
        counted = sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(sa.case((_ALARMED, 1), else_=0)), 0),
            sa.func.coalesce(sa.func.sum(streams.c.samples), 0),
        ).where(*self._seen_by(token))
        with self._engine.connect() as connection:
            number, alarmed, samples = connection.execute(counted).one()
        return {"streams": int(number), "alarmed": int(alarmed), "samples": int(samples)}

    def streams(self, token: Token, limit: int = 200, find: str = "") -> list[dict[str, Any]]:
        """Return streams: those that are alarmed first, the latest change first."""
        chosen = self._select(token)
        if find:
            text = find.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            named = sa.func.lower(streams.c.model + "/" + streams.c.sequence)
            chosen = chosen.where(named.like(f"%{text.lower()}%", escape="\\"))
        order = (sa.case((_ALARMED, 0), else_=1), streams.c.updated.desc())
        return self._rows(chosen.order_by(*order).limit(min(limit, MOST)))

    def changed(self, token: Token, since: float) -> list[dict[str, Any]]:
        """Return streams that changed after a time, the latest first."""
        chosen = self._select(token).where(streams.c.updated > since)
        return self._rows(chosen.order_by(streams.c.updated.desc()).limit(MOST))

    def stream(self, token: Token, id_: int) -> dict[str, Any]:
        """Return one stream; a ``RefusedError`` if there is none that the bearer may see."""
        found = self._rows(self._select(token).where(streams.c.id == id_))
        if not found:
            raise RefusedError(404, "there is no such stream")
        return found[0]

    def history(self, id_: int, after: int = 0, limit: int = 2000) -> list[dict[str, Any]]:
        """Return the remembered requests of a stream, the oldest first; ``after``: a version."""
        chosen = (
            sa.select(*(requests.c[name] for name in _POINT))
            .where(requests.c.stream == id_, requests.c.version > after)
            .order_by(requests.c.version.desc())
            .limit(limit)
        )
        return self._rows(chosen)[::-1]

    def forget(self, token: Token, id_: int) -> None:
        """Delete a stream with its memory and history."""
        self.stream(token, id_)
        with writing(self._engine) as connection:
            connection.execute(sa.delete(requests).where(requests.c.stream == id_))
            connection.execute(sa.delete(streams).where(streams.c.id == id_))

    def _select(self, token: Token) -> sa.Select[Any]:
        return sa.select(*(streams.c[name] for name in _SHOWN)).where(*self._seen_by(token))

    def _rows(self, chosen: sa.Select[Any]) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            found = connection.execute(chosen)
            names = [str(name) for name in found.keys()]  # noqa: SIM118 - of columns, not of a mapping
            return [dict(zip(names, row, strict=True)) for row in found]
