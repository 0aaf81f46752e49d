"""Starting a server: what is checked first, what is said, and the processes that answer."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from btfl.errors import InputError
from btfl.serve.app import ENVIRONMENT
from btfl.serve.schema import open_engine
from btfl.serve.settings import ServeSettings
from btfl.serve.state import Serving
from btfl.serve.tokens import TokenBook

_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


def settle_auth(settings: ServeSettings) -> ServeSettings:
    """Return the settings with it decided whether tokens are asked for.

    On loopback a server without any token asks for none; elsewhere it does not start.
    """
    if not settings.auth:
        return settings
    engine = open_engine(settings.database, settings.durability)
    try:
        if TokenBook(engine).all():
            return settings
    finally:
        engine.dispose()
    if not settings.is_loopback:
        raise InputError(
            f"on {settings.host} others can reach the server, and it has no token yet: make one with "
            f"`btfl serve-token new NAME --may infer --database {settings.database}`"
        )
    return replace(settings, auth=False)


def check(source: str, settings: ServeSettings) -> dict[str, Any]:
    """Load everything, ask every model once, and return what was found; what is wrong is an error."""
    serving = Serving(source, settings)
    try:
        for model in serving.models.values():
            model.step(np.zeros((1, model.dimensions)), model.fresh)
        if not serving.ledger.ping():
            raise InputError("the database does not answer")
        return {
            "models": len(serving.models),
            "method": settings.method,
            "classes": sorted({model.classes for model in serving.models.values()}),
            "dimensions": sorted({model.dimensions for model in serving.models.values()}),
            "images": None if serving.extractor is None else list(serving.extractor.shape),
            "database": serving.ledger.engine.dialect.name,
            "tokens": len(serving.book.all()),
            "levels": sorted({model.calibration.source for model in serving.models.values()}),
        }
    finally:
        serving.close()


def run(source: str, settings: ServeSettings) -> None:
    """Serve until a signal says to stop."""
    import uvicorn

    os.environ[ENVIRONMENT] = json.dumps({"source": source, "settings": settings.as_dict()})
    with _metrics_of_all_workers(settings.workers):
        uvicorn.run(
            "btfl.serve.app:from_environment",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            http="btfl.serve.patience:PatientProtocol",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here depends on the sender's address
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
            timeout_graceful_shutdown=settings.stop_within,
            timeout_keep_alive=30,
            limit_concurrency=2000,
        )


@contextmanager
def _metrics_of_all_workers(workers: int) -> Iterator[None]:
    """Give several workers a folder in which their counters are added up."""
    if workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="btfl-metrics-") as folder:
        os.environ[_MULTIPROCESS] = folder
        try:
            yield
        finally:
            del os.environ[_MULTIPROCESS]
