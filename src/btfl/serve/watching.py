"""For people: the fleet and one stream as JSON, live as server-sent events, Prometheus' metrics, and the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib import resources
from typing import Annotated, Any

import orjson
import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from btfl import __version__
from btfl.serve.openapi import RESPONSES
from btfl.serve.refusal import RefusedError
from btfl.serve.state import Serving
from btfl.serve.tokens import ADMIN, LOCAL, Token

router = APIRouter(tags=["watching"], responses=RESPONSES)
EVERY = 0.5
"""Seconds between two looks at what has changed."""
_OVERLAP = 2.0  # seconds that are looked at again: a transaction may end later than its time says
_SILENT = 15.0  # seconds after which a comment shows that the connection is alive
_MOST_WATCHERS = 100
_KINDS = {"index.html": "text/html; charset=utf-8", "page.css": "text/css", "page.js": "text/javascript",
          "favicon.svg": "image/svg+xml"}  # fmt: skip
Id = Annotated[int, Path(ge=1, le=2**62, description="Number of a stream, as /api/fleet tells it.")]


async def _ask(work: Any, *words: Any) -> Any:
    """Ask the database in a thread; if it is away, say so."""
    try:
        return await asyncio.to_thread(work, *words)
    except sa.exc.SQLAlchemyError:
        raise RefusedError(503, "the database does not answer", {"Retry-After": "1"}) from None


@router.get("/api/fleet")
async def fleet(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
    find: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Tell of all streams: totals, and the first of them, alarmed ones first."""
    serving: Serving = request.app.state.serving
    token: Token = request.state.token
    if "\0" in find:
        raise RefusedError(400, "find is a text without zero bytes")
    told = {
        "totals": await _ask(serving.fleet.totals, token),
        "streams": await _ask(serving.fleet.streams, token, limit, find),
        "now": time.time(),
        "server": {
            "version": __version__,
            "models": sum(token.sees_model(name) for name in serving.models),
            "method": serving.settings.method,
            "rate": serving.settings.rate,
            "auth": serving.settings.auth,
        },
    }
    return Response(orjson.dumps(told), media_type="application/json")


@router.get("/api/streams/{id}")
async def stream(request: Request, id: Id) -> Response:  # noqa: A002 - its name in the path
    """Tell of one stream: what it is now, its remembered requests, and the levels of its alarms."""
    serving: Serving = request.app.state.serving
    found = await _ask(serving.fleet.stream, request.state.token, id)
    model = serving.models.get(found["model"])
    told = {
        "stream": found,
        "history": await _ask(serving.fleet.history, id),
        "levels": {} if model is None else {name: one._asdict() for name, one in model.monitor.levels.items()},
        "calibrated_on": "" if model is None else model.calibration.source,
        "now": time.time(),
    }
    return Response(orjson.dumps(told), media_type="application/json")


@router.delete("/api/streams/{id}", status_code=204, response_class=Response)
async def forget(request: Request, id: Id) -> Response:  # noqa: A002
    """Delete a stream, its memory and its history."""
    serving: Serving = request.app.state.serving
    await _ask(serving.fleet.forget, request.state.token, id)
    return Response(status_code=204)


@router.get("/api/events", response_class=StreamingResponse)
async def events(
    request: Request,
    stream: Annotated[int, Query(ge=0, le=2**62)] = 0,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
) -> StreamingResponse:
    """Send what changes, as it does: streams; and of one ``stream`` the requests that came ``after`` a version."""
    serving: Serving = request.app.state.serving
    token: Token = request.state.token
    if stream:
        await _ask(serving.fleet.stream, token, stream)
    if serving.watchers >= _MOST_WATCHERS:
        raise RefusedError(429, f"{_MOST_WATCHERS} are watching already", {"Retry-After": "10"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    secret = request.headers.get("authorization", "").partition(" ")[2].strip()
    return StreamingResponse(_events(serving, token, secret, stream, after), 200, headers, "text/event-stream")


async def _events(serving: Serving, token: Token, secret: str, stream: int, after: int) -> AsyncIterator[bytes]:
    serving.watchers += 1
    try:
        since, sent, totals = time.time() - _OVERLAP, dict[int, int](), dict[str, int]()
        quiet = checked = time.monotonic()
        yield b": connected\n\n"
        while not serving.stopping.is_set():
            now = time.time()
            changed = [
                row for row in await _ask(serving.fleet.changed, token, since) if sent.get(row["id"]) != row["version"]
            ]
            since = now - _OVERLAP
            sent = {row["id"]: row["version"] for row in changed} | {k: v for k, v in sent.items() if len(sent) < 2000}
            points = await _ask(serving.fleet.history, stream, after) if stream else []
            after = points[-1]["version"] if points else after
            new_totals = await _ask(serving.fleet.totals, token) if changed or not totals else totals
            if changed or points or new_totals != totals:
                totals = new_totals
                told = {"streams": changed, "history": points, "totals": totals, "now": now}
                yield b"data: " + orjson.dumps(told) + b"\n\n"
                quiet = time.monotonic()
            elif time.monotonic() - quiet > _SILENT:
                yield b": nothing new\n\n"
                quiet = time.monotonic()
            if token is not LOCAL and time.monotonic() - checked > 5.0:
                checked = time.monotonic()
                if await _ask(serving.book.bearer, secret) is None:  # revoked, or expired
                    return
            await _pause(serving)
    except RefusedError:  # the database is away: whoever watches connects again
        return
    finally:
        serving.watchers -= 1


async def _pause(serving: Serving) -> None:
    try:
        await asyncio.wait_for(serving.stopping.wait(), EVERY)
    except TimeoutError:
        return


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Tell Prometheus; of all tenants, and nothing of any one of them."""
    serving: Serving = request.app.state.serving
    totals = await _ask(serving.fleet.totals, Token("metrics", "metrics", "*", (ADMIN,)))
    gauges = {
        "btfl_streams": ("Streams that are remembered.", totals["streams"]),
        "btfl_alarmed_streams": ("Streams whose alarm is on.", totals["alarmed"]),
        "btfl_models": ("Models that are served.", len(serving.models)),
    }
    content = await asyncio.to_thread(serving.metrics.text, gauges)
    return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


def _file(name: str) -> Response:
    content = (resources.files("btfl.serve") / "page" / name).read_bytes()
    return Response(content, media_type=_KINDS[name], headers={"Cache-Control": "no-cache"})


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page."""
    return _file("index.html")


@router.get("/page.css", include_in_schema=False)
async def page_css() -> Response:
    """Return how the page looks."""
    return _file("page.css")


@router.get("/page.js", include_in_schema=False)
async def page_js() -> Response:
    """Return what the page does."""
    return _file("page.js")


@router.get("/favicon.svg", include_in_schema=False)
async def favicon() -> Response:
    """Return the page's sign."""
    return _file("favicon.svg")
