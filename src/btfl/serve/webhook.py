"""Posting alarms to a URL of the operator's: from a thread of its own, so that no answer waits for it."""

from __future__ import annotations

import logging
import queue
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from btfl.serve.logs import log

_WAITING, _SECONDS, _TRIES = 1000, 5.0, 3


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The operator named one URL; where it points is not followed."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """Posts JSON to one URL.

    Parameters
    ----------
    url : as the operator set it
    count : called with ``sent``, ``failed`` or ``dropped``
    wait : seconds before the second try; then twice as long
    """

    def __init__(self, url: str, count: Callable[[str], None], wait: float = 1.0) -> None:
        self._url, self._count, self._wait = url, count, wait
        self._queue: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def post(self, content: Mapping[str, Any]) -> None:
        """Have something posted soon; if too much is waiting, it is dropped, counted and logged."""
        try:
            self._queue.put_nowait(orjson.dumps(content))
        except queue.Full:
            self._count("dropped")
            log("an alarm was not posted: too many are waiting", logging.ERROR)

    def close(self, seconds: float = _SECONDS) -> None:
        """Post what is waiting, for so long at most."""
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        while (content := self._queue.get()) is not None:
            self._count("sent" if self._post(content) else "failed")

    def _post(self, content: bytes) -> bool:
        request = urllib.request.Request(self._url, content, {"Content-Type": "application/json"}, method="POST")
        for attempt in range(_TRIES):
            try:
                with self._opener.open(request, timeout=_SECONDS):
                    return True
            except OSError as error:  # URLError and HTTPError are OSErrors
                if attempt == _TRIES - 1:
                    log("an alarm could not be posted", logging.ERROR, error=str(error))
                else:
                    time.sleep(self._wait * 2**attempt)
        return False
