"""Structured logs: a line of JSON for each thing that happened, on stderr. No features, no tokens."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any

import orjson

from btfl.checks import printable

_log = logging.getLogger("btfl.serve")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "severity": record.levelname.lower(),
            "event": printable(record.getMessage(), 500),
            "worker": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            told["trace"] = "".join(traceback.format_exception(*record.exc_info))[-4000:]
        return orjson.dumps(told, default=str).decode()


def set_up_logs() -> None:
    """Write the logs of this process, uvicorn's errors among them, as JSON lines on stderr.

    Its warnings tell of strangers who do not speak HTTP, a line for each: they would fill the disk.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    for name, level in (("btfl.serve", logging.INFO), ("uvicorn", logging.ERROR), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate = ([handler] if name != "uvicorn.error" else []), name == "uvicorn.error"
        logger.setLevel(level)


def log(event: str, severity: int = logging.INFO, exc_info: bool = False, **fields: Any) -> None:
    """Log that something happened, with what is known of it."""
    shown = {name: printable(value, 300) if isinstance(value, str) else value for name, value in fields.items()}
    _log.log(severity, event, extra={"fields": shown}, exc_info=exc_info)
