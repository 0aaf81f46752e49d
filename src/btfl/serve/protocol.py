"""The Open Inference Protocol v2 over HTTP, with Triton's sequences and binary tensors: one model for each client."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from btfl import __version__
from btfl.serve.infer import VERSION, find_model
from btfl.serve.infer import infer as answer
from btfl.serve.model import Model
from btfl.serve.openapi import INFER_BODY, RESPONSES
from btfl.serve.state import Serving
from btfl.serve.tokens import Token

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
EXTENSIONS = ("sequence", "binary_tensor_data", "model_repository")


@router.get("/health/live", response_class=Response)
async def live() -> Response:
    """Answer that the process is alive."""
    return Response()


@router.get("/health/ready", response_class=Response, responses={503: {"description": "The database is away."}})
async def ready(request: Request) -> Response:
    """Answer whether requests can be answered: not while the database is away, nor while the server stops."""
    serving: Serving = request.app.state.serving
    up = not serving.stopping.is_set() and await asyncio.to_thread(serving.ready)
    return Response(status_code=200 if up else 503)


@router.get("")
async def server() -> dict[str, Any]:
    """Tell what the server is."""
    return {"name": "btfl", "version": __version__, "extensions": EXTENSIONS}


@router.post("/repository/index")
async def index(request: Request) -> list[dict[str, str]]:
    """List the models that the bearer may see, as Triton does."""
    serving: Serving = request.app.state.serving
    token: Token = request.state.token
    names = [name for name in serving.models if token.sees_model(name)]
    return [{"name": name, "version": VERSION, "state": "READY"} for name in names]


@router.get("/models/{model}", responses=RESPONSES)
@router.get("/models/{model}/versions/{version}", responses=RESPONSES)
async def metadata(request: Request, model: str, version: str = VERSION) -> dict[str, Any]:
    """Tell a model's inputs and outputs."""
    serving: Serving = request.app.state.serving
    images = None if serving.extractor is None else serving.extractor.shape
    return _model(request, model, version).metadata(images)


@router.get("/models/{model}/ready", response_class=Response, responses=RESPONSES)
@router.get("/models/{model}/versions/{version}/ready", response_class=Response, responses=RESPONSES)
async def model_ready(request: Request, model: str, version: str = VERSION) -> Response:
    """Answer whether a model can be asked."""
    _model(request, model, version)
    return await ready(request)


@router.post("/models/{model}/infer", responses=RESPONSES, openapi_extra=INFER_BODY)
@router.post("/models/{model}/versions/{version}/infer", responses=RESPONSES, openapi_extra=INFER_BODY)
async def infer(request: Request, model: str, version: str = VERSION) -> Response:
    """Judge the next samples of a stream; without a sequence_id, samples by themselves, and nothing is remembered."""
    headers = dict(request.scope["headers"])
    token: Token = request.state.token
    content, told = await answer(request.app.state.serving, token, model, version, headers, request.receive)
    return Response(content, headers={name.decode(): value.decode() for name, value in told})


def _model(request: Request, name: str, version: str) -> Model:
    return find_model(request.app.state.serving, request.state.token, name, version)
