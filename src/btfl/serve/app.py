"""The server's app: the Open Inference Protocol, the fleet's history and its page, behind one door."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from btfl import __version__
from btfl.serve import protocol, watching
from btfl.serve.door import Door
from btfl.serve.infer import Infer
from btfl.serve.logs import log, set_up_logs
from btfl.serve.refusal import RefusedError
from btfl.serve.settings import ServeSettings
from btfl.serve.state import Serving

ENVIRONMENT = "BTFL_SERVE"
"""The variable in which a worker finds what it is to serve, as JSON."""


def create_app(serving: Serving) -> Door:
    """Return the app of one worker, to be run by any ASGI server."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        _stop_streams_on_signal(serving)
        gc.collect()
        gc.freeze()  # models and modules stay: there is no need to look through them again and again
        log(
            "ready", models=len(serving.models), database=serving.ledger.engine.dialect.name, auth=serving.settings.auth
        )
        yield
        log("stopped")
        serving.close()

    app = FastAPI(
        title="btfl serve",
        version=__version__,
        description="Adapters for a fleet: the Open Inference Protocol v2, and a monitor. docs/serving.md",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.serving = serving
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_there)
    app.add_exception_handler(Exception, _bug)
    app.include_router(protocol.router)
    app.include_router(watching.router)
    return Door(Infer(app, serving), serving.settings, serving.book, serving.metrics)


def from_environment() -> Door:
    """Return the app that the variable ``BTFL_SERVE`` describes: how each worker process begins."""
    set_up_logs()
    told = json.loads(os.environ[ENVIRONMENT])
    return create_app(Serving(told["source"], ServeSettings.make(**told["settings"])))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": str(error)}, error.status, error.headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"error": "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:3])}, 400)


async def _not_there(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _bug(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": "this is a bug in btfl; the log of the server says more"}, 500)


def _stop_streams_on_signal(serving: Serving) -> None:
    """Let open event streams end when the server is told to stop: it waits for them otherwise."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before: Any = signal.getsignal(number)

        def stop(received: int, frame: Any, before: Any = before) -> None:
            loop.call_soon_threadsafe(serving.stopping.set)
            if callable(before):
                before(received, frame)

        try:
            signal.signal(number, stop)
        except ValueError:  # not the main thread: whoever runs the app there stops it by other means
            return
