"""A connection that sends the head of an answer together with its body: uvicorn alone sends them one after the other.

Two writes are two system calls, two packets, and a sender that is woken twice, which is a tenth of a small request.
"""

from __future__ import annotations

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class OneWrite:
    """Stands before a transport: holds the head of an answer back until its body comes, or the loop goes on.

    Parameters
    ----------
    transport : of the connection; everything but writing and closing is left to it
    loop : whose next turn ends the waiting: the body of an event stream may come much later
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Send bytes, in their order."""
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_HEAD):
            self._held = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Send what is held back, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            data, self._held = self._held, b""
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
