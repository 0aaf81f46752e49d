"""How HTTP is spoken: uvicorn's way, but connections that send nothing, or a byte at a time, do not wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from btfl.serve.transport import OneWrite

REQUEST_WITHIN = 15.0
"""Seconds that a connection has for a whole request, from its first byte; and a new one for its first byte."""


class PatientProtocol(HttpToolsProtocol):
    """HTTP by httptools, with an end to its patience."""

    _waiting: asyncio.TimerHandle | None = None
    _halfway = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes; if a request is not whole after them, wait for the rest, but not for ever."""
        super().data_received(data)
        if not self._halfway:
            self._stop_waiting()
        elif self._waiting is None:  # of a request that came in one piece nobody waits
            self._wait()

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self._halfway = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Note that it is whole."""
        self._halfway = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_WITHIN, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
