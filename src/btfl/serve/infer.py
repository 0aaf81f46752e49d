"""Answering ``infer``, the one request that must be quick: before the routes, on the bytes that the server hands over.

FastAPI's routes and parameters cost as much as the rest of a request together. So this stands before them; the route in
``protocol.py`` is there for the schema, and does the same.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from btfl.checks import printable
from btfl.monitor.looks import SIGNAL as LOOKS
from btfl.serve.answers import Answer
from btfl.serve.asgi import App, Receive, Scope, Send
from btfl.serve.changes import Taken
from btfl.serve.model import Model
from btfl.serve.refusal import RefusedError
from btfl.serve.state import Serving
from btfl.serve.tensors import HEADER, InferRequest, read_request, write_answer
from btfl.serve.tokens import Token

VERSION = "1"
_JSON, _BYTES = (b"content-type", b"application/json"), (b"content-type", b"application/octet-stream")
_HEADER = HEADER.lower().encode()
Headers = Mapping[bytes, bytes]


class Infer:
    """An app that answers ``POST /v2/models/MODEL[/versions/1]/infer``, and leaves the rest to another."""

    def __init__(self, app: App, serving: Serving) -> None:
        self._app, self._serving = app, serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        named = _named(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if named is None:
            await self._app(scope, receive, send)
            return
        headers: Headers = dict(scope["headers"])
        content, told = await infer(self._serving, scope["state"]["token"], *named, headers, receive)
        await send({"type": "http.response.start", "status": 200, "headers": told})
        await send({"type": "http.response.body", "body": content})


def _named(path: str) -> tuple[str, str] | None:
    """Return the model and the version that a path asks; None if it asks something else."""
    parts = path.split("/")
    if parts[:3] != ["", "v2", "models"] or parts[-1] != "infer":
        return None
    if len(parts) == 5:
        return parts[3], VERSION
    return (parts[3], parts[5]) if len(parts) == 7 and parts[4] == "versions" else None


def find_model(serving: Serving, token: Token, name: str, version: str) -> Model:
    """Return a model that the bearer may see; a ``RefusedError`` if there is none."""
    found = serving.models.get(name) if version == VERSION and token.sees_model(name) else None
    if found is None:
        raise RefusedError(404, f"there is no model {printable(name, 60)!r}, version {printable(version, 20)}")
    return found


async def infer(
    serving: Serving, token: Token, name: str, version: str, headers: Headers, receive: Receive
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Answer a request; return the content and the headers of the answer."""
    model = find_model(serving, token, name, version)
    if b"content-encoding" in headers:
        raise RefusedError(415, "requests are not compressed")
    body = await _body(receive, serving.settings.largest_body)
    length = headers.get(_HEADER)
    asked = read_request(body, None if length is None else length.decode("latin-1"), serving.settings.most_samples)
    answer = await _answer(serving, model, token, asked)
    parameters = answer.parameters(asked.sequence) if asked.sequence else {"memory": "none"}
    content, header = write_answer(name, asked.id, answer.outputs, asked.outputs, asked.binary, parameters)
    size = (b"content-length", b"%d" % len(content))
    return content, [size, _JSON] if header is None else [size, _BYTES, (_HEADER, b"%d" % header)]


async def _answer(serving: Serving, model: Model, token: Token, asked: InferRequest) -> Answer:
    for one in asked.outputs:  # before anything is remembered
        if one.name != "probabilities" and one.name not in model.columns:
            raise RefusedError(400, f"there is no output {printable(one.name, 60)!r} of {model.name}")
        if one.name == LOOKS and asked.images is None:
            raise RefusedError(400, f"the output '{LOOKS}' tells how images look: send images, not features")
    features = await _features(serving, asked)
    if not asked.sequence:
        step = model.step(features, model.fresh, asked.images)
        serving.metrics.step(model.name, step)
        return Answer(step.outputs, 0, "none", step.alarmed, "")
    digest = _digest(asked) if asked.id else b""
    if serving.together is not None:
        taken: Taken = await serving.together.take(model, token.tenant, asked, features, digest)
    else:
        loop, take = asyncio.get_running_loop(), serving.ledger.take
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


async def _body(receive: Receive, largest: int) -> bytes:
    """Read the body, refusing one that is too long before all of it is here; ``patience.py`` ends one that is slow."""
    parts, length = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the sender went away before the request was whole")
        part: bytes = message.get("body", b"")
        length += len(part)
        if length > largest:
            raise RefusedError(413, f"a request may have {largest} bytes", {"Connection": "close"})
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
