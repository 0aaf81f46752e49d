"""Asking an ASGI app questions in this process, one after the other, over HTTPX."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


class Client:
    """A client of one app; ``close`` ends it."""

    def __init__(self, app: Any, base_url: str = "http://localhost:8000") -> None:
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url)

    def request(self, verb: str, path: str, **told: Any) -> httpx.Response:
        """Send a request and return the answer."""
        return self._runner.run(self._client.request(verb, path, **told))

    def get(self, path: str, **told: Any) -> httpx.Response:
        """Send a GET."""
        return self.request("GET", path, **told)

    def post(self, path: str, **told: Any) -> httpx.Response:
        """Send a POST."""
        return self.request("POST", path, **told)

    def delete(self, path: str, **told: Any) -> httpx.Response:
        """Send a DELETE."""
        return self.request("DELETE", path, **told)

    def close(self) -> None:
        """End it."""
        self._runner.run(self._client.aclose())
        self._runner.close()
