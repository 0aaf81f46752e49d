"""The door of the server: who may enter, how often, and with how much; and what is written down of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict

import orjson
import sqlalchemy as sa

from btfl.serve.asgi import App, Message, Receive, Scope, Send
from btfl.serve.logs import log
from btfl.serve.metrics import Metrics
from btfl.serve.refusal import RefusedError
from btfl.serve.settings import LOOPBACK, ServeSettings
from btfl.serve.tokens import ADMIN, INFER, LOCAL, READ, Token, TokenBook

OPEN = frozenset({"/", "/page.css", "/page.js", "/favicon.svg", "/v2/health/live", "/v2/health/ready"})
"""What is answered without a token: the page's own files, which hold no data, and whether the server is alive."""
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
     b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
)  # fmt: skip
_MOST_BUCKETS = 10_000
_WRONG_TOKENS = 20.0  # a second, that are looked up


class Buckets:
    """Token buckets: each name may do so much a second, and ``burst`` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str) -> float:
        """Take one; return the seconds to wait if there is none left, else 0."""
        now = time.monotonic()
        left, before = self._left.get(name, (self._burst, now))
        left = min(self._burst, left + (now - before) * self._rate)
        self._left[name] = (left - 1.0 if left >= 1.0 else left), now
        if len(self._left) > _MOST_BUCKETS:
            self._left.popitem(last=False)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._rate


def needed(method: str, path: str) -> tuple[str, ...]:
    """Return the rights of which one is needed."""
    if path.startswith("/v2/"):
        return (INFER,) if path.endswith("/infer") else (INFER, READ)
    return (READ,) if method in ("GET", "HEAD") else (ADMIN,)


class Door:
    """Stands before the app: tokens, limits, errors as JSON, metrics."""

    def __init__(self, app: App, settings: ServeSettings, book: TokenBook, metrics: Metrics) -> None:
        self._app, self._settings, self._book, self._metrics = app, settings, book, metrics
        limit = settings.requests_per_second
        self._buckets = Buckets(limit, settings.burst) if limit else None
        self._lookups = Buckets(_WRONG_TOKENS, _WRONG_TOKENS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0
        of = "infer" if scope["path"].endswith("/infer") else "other"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *(_SAFE[:1] if of == "infer" else _SAFE)]
            await send(message)

        try:
            scope.setdefault("state", {})["token"] = await self._admit(scope)
            await self._app(scope, receive, noting)
        except RefusedError as refusal:
            await _answer(noting, refusal.status, str(refusal), refusal.headers)
        except Exception:
            log("a request failed", logging.ERROR, exc_info=True, path=scope["path"])
            if not status:
                await _answer(noting, 500, "this is a bug in btfl; the log of the server says more", {})
        finally:
            seconds = time.perf_counter() - begun
            self._metrics.request(of, status, seconds)
            if self._settings.log_requests:
                token: Token | None = scope["state"].get("token")
                who = token.name if token else ""
                log("request", path=scope["path"], status=status, seconds=round(seconds, 6), token=who)

    async def _admit(self, scope: Scope) -> Token | None:
        """Return who asks; a ``RefusedError`` if that may not be."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path: str = scope["path"]
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self._settings.largest_body:
            raise RefusedError(413, f"a request may have {self._settings.largest_body} bytes", {"Connection": "close"})
        if not self._settings.auth:
            _check_local(headers)
        if path in OPEN:
            return None
        token = await self._bearer(headers) if self._settings.auth else LOCAL
        rights = needed(scope["method"], path)
        if not any(token.can(right) for right in rights):
            raise RefusedError(403, f"this token may {' and '.join(token.may)}; this needs {' or '.join(rights)}")
        if self._buckets is not None and (wait := self._buckets.wait(token.id)):
            raise RefusedError(429, "too many requests with this token", {"Retry-After": str(max(1, round(wait)))})
        return token

    async def _bearer(self, headers: dict[bytes, bytes]) -> Token:
        kind, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        refused = RefusedError(401, "a token is needed: Authorization: Bearer btfl_...", {"WWW-Authenticate": "Bearer"})
        if kind.lower() != "bearer":
            raise refused
        known, token = self._book.remembered(text.strip())
        if not known:
            if wait := self._lookups.wait("all"):
                raise RefusedError(429, "too many tokens that are not known", {"Retry-After": str(max(1, round(wait)))})
            try:
                token = await asyncio.get_running_loop().run_in_executor(None, self._book.bearer, text.strip())
            except sa.exc.SQLAlchemyError as error:
                log("the database does not answer", logging.ERROR, error=type(error).__name__)
                raise RefusedError(503, "the database does not answer", {"Retry-After": "1"}) from None
        if token is None:
            raise refused
        return token


def _check_local(headers: dict[bytes, bytes]) -> None:
    """Refuse what a page of somebody else's makes a browser on this machine send: there is no token to stop it."""
    names = [headers.get(b"host", b"")]
    if origin := headers.get(b"origin"):
        names.append(origin.partition(b"://")[2])
    for name in names:
        host = name.decode("latin-1")
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if host not in LOOPBACK:
            raise RefusedError(
                403, "without tokens only this machine is answered, under the name localhost or 127.0.0.1"
            )


async def _answer(send: Send, status: int, said: str, headers: dict[str, str]) -> None:
    body = orjson.dumps({"error": said})
    told = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = [(name.lower().encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
