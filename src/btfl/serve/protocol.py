"""The Open Inference Protocol v2 over HTTP, with Triton's sequences and binary tensors: one model for each client."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect

from btfl import __version__
from btfl.checks import printable
from btfl.serve.answers import Answer
from btfl.serve.ledger import Taken
from btfl.serve.logs import log
from btfl.serve.model import Model
from btfl.serve.openapi import INFER_BODY, RESPONSES
from btfl.serve.refusal import RefusedError
from btfl.serve.state import Serving
from btfl.serve.tensors import HEADER, InferRequest, read_request, write_answer
from btfl.serve.tokens import Token

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
VERSION = "1"
EXTENSIONS = ("sequence", "binary_tensor_data", "model_repository")
_BODY_WITHIN = 30.0  # seconds
_HEADER = HEADER.lower()


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
    serving: Serving = request.app.state.serving
    found = _model(request, model, version)
    if "content-encoding" in request.headers:
        raise RefusedError(415, "requests are not compressed")
    body = await _body(request, serving.settings.largest_body)
    asked = read_request(body, request.headers.get(_HEADER), serving.settings.most_samples)
    answer = await _answer(serving, found, request.state.token, asked)
    parameters = answer.parameters(asked.sequence) if asked.sequence else {"memory": "none"}
    content, header = write_answer(model, asked.id, answer.outputs, asked.outputs, asked.binary, parameters)
    if header is None:
        return Response(content, media_type="application/json")
    return Response(content, headers={HEADER: str(header)}, media_type="application/octet-stream")


async def _answer(serving: Serving, model: Model, token: Token, asked: InferRequest) -> Answer:
    for one in asked.outputs:  # before anything is remembered
        if one.name != "probabilities" and one.name not in model.columns:
            raise RefusedError(400, f"there is no output {printable(one.name, 60)!r} of {model.name}")
    features = await _features(serving, asked)
    if not asked.sequence:
        step = model.step(features, model.fresh)
        serving.metrics.step(model.name, step)
        return Answer(step.outputs, 0, "none", step.alarmed, "")
    digest = _digest(asked)
    take = serving.ledger.take
    if serving.ledger.sqlite:
        taken: Taken = take(model, token.tenant, asked, features, digest)
    else:
        loop = asyncio.get_running_loop()
        taken = await loop.run_in_executor(serving.threads, take, model, token.tenant, asked, features, digest)
    serving.metrics.taken(taken.answer.memory, taken.step is None, taken.conflicts)
    if taken.step is not None:
        serving.note(model, token.tenant, asked.sequence, taken.step, taken.answer)
    return taken.answer


async def _features(serving: Serving, asked: InferRequest) -> NDArray[np.float64]:
    if asked.name == "features":
        return np.ascontiguousarray(asked.array, dtype=np.float64)
    if serving.extractor is None:
        raise RefusedError(400, "this server takes features alone: it has no extractor, or no onnxruntime")
    return await asyncio.get_running_loop().run_in_executor(None, serving.extractor, asked.array)


def _digest(asked: InferRequest) -> bytes:
    """Return what tells two requests with one id apart: samples and flags, however they were written."""
    told = f"{asked.name} {asked.array.dtype.str} {asked.array.shape} {asked.start} {asked.end}".encode()
    return hashlib.blake2b(asked.array.tobytes() + told, digest_size=16).digest()


def _model(request: Request, name: str, version: str) -> Model:
    serving: Serving = request.app.state.serving
    token: Token = request.state.token
    found = serving.models.get(name) if version == VERSION and token.sees_model(name) else None
    if found is None:
        raise RefusedError(404, f"there is no model {printable(name, 60)!r}, version {printable(version, 20)}")
    return found


async def _body(request: Request, largest: int) -> bytes:
    """Read the body, refusing one that is too long, or takes too long, before all of it is here."""
    parts, length = [], 0
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            async for part in request.stream():
                length += len(part)
                if length > largest:
                    raise RefusedError(413, f"a request may have {largest} bytes", {"Connection": "close"})
                parts.append(part)
    except ClientDisconnect:
        raise RefusedError(400, "the sender went away before the request was whole") from None
    except TimeoutError:
        log("a request came too slowly", logging.WARNING)
        raise RefusedError(408, "the request came too slowly", {"Connection": "close"}) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)
