"""Requests and answers of the Open Inference Protocol, version 2: JSON, and tensors as raw bytes after it.

https://github.com/kserve/open-inference-protocol; the bytes are Triton's binary tensor extension: a JSON header whose
length is in ``Inference-Header-Content-Length``, then the tensors in turn, each with its ``binary_data_size``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from btfl.checks import printable
from btfl.serve.refusal import RefusedError

DTYPES: Mapping[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "UINT8": np.dtype("u1"),
    "INT8": np.dtype("i1"),
}
NAMES: Mapping[str, str] = {"f8": "FP64", "f4": "FP32", "i1": "INT8", "u1": "UINT8"}
HEADER = "Inference-Header-Content-Length"
LONGEST_ID = 128
_OUT = orjson.OPT_SERIALIZE_NUMPY


class Wanted(NamedTuple):
    """An output that was asked for."""

    name: str
    binary: bool


class InferRequest(NamedTuple):
    """What one request asks."""

    id: str
    name: str
    """Of the input: ``features`` or ``images``."""
    array: NDArray[Any]
    sequence: str
    """Which stream; empty: none, so the sample is judged as the first of a stream and nothing is remembered."""
    start: bool
    end: bool
    outputs: tuple[Wanted, ...]
    """Empty: all of them."""
    binary: bool
    """Whether outputs that were not asked for by name come as bytes."""

    @property
    def images(self) -> NDArray[Any] | None:
        """The images, if that is what was sent."""
        return self.array if self.name == "images" else None


def read_request(body: bytes, header_length: str | None, most_samples: int) -> InferRequest:
    """Read a request, or raise a ``RefusedError`` that says what is wrong with it."""
    text, rest = _split(body, header_length)
    try:
        told = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RefusedError(400, f"the request is not JSON: {printable(error, 120)}") from None
    if not isinstance(told, dict):
        raise RefusedError(400, "a request is a JSON object with inputs")
    inputs = told.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise RefusedError(400, "a request has one input: features, or images")
    parameters = _parameters(told, "the request")
    name, array = _tensor(inputs[0], rest, most_samples)
    start, end = (_flag(parameters, f"sequence_{flag}") for flag in ("start", "end"))
    sequence = _sequence(parameters.get("sequence_id", 0))
    if not sequence and (start or end):
        raise RefusedError(400, "sequence_start and sequence_end need a sequence_id other than 0")
    binary = _flag(parameters, "binary_data_output")
    return InferRequest(
        _id(told.get("id", "")), name, array, sequence, start, end, _wanted(told.get("outputs"), binary), binary
    )


def _split(body: bytes, header_length: str | None) -> tuple[bytes, memoryview]:
    if header_length is None:
        return body, memoryview(b"")
    if not header_length.isascii() or not header_length.isdigit() or len(header_length) > 12:
        raise RefusedError(400, f"{HEADER} must be a number of bytes")
    length = int(header_length)
    if length > len(body):
        raise RefusedError(400, f"{HEADER} says {length} bytes, but the request has {len(body)}")
    return body[:length], memoryview(body)[length:]


def _parameters(told: Mapping[str, Any], of: str) -> dict[str, Any]:
    found = told.get("parameters", {})
    if not isinstance(found, dict):
        raise RefusedError(400, f"parameters of {of} are a JSON object")
    return found


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError(400, f"{name} is true or false")
    return value


def _id(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_ID or not value.isprintable():
        raise RefusedError(400, f"id is a printable text of at most {LONGEST_ID} characters")
    return value


def _sequence(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return str(value) if value else ""
    if isinstance(value, str) and len(value) <= LONGEST_ID and value.isprintable() and value != "0":
        return value
    raise RefusedError(
        400, f"sequence_id is a whole number below 2^64, or a printable text of at most {LONGEST_ID} characters"
    )


def _wanted(value: Any, binary: bool) -> tuple[Wanted, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 64:
        raise RefusedError(400, "outputs are a list of objects with a name")
    found = []
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise RefusedError(400, "outputs are a list of objects with a name")
        parameters = _parameters(each, "an output")
        if "classification" in parameters:
            raise RefusedError(400, "classification of outputs is not supported: ask for probabilities")
        found.append(Wanted(each["name"], _flag({"binary_data": binary} | parameters, "binary_data")))
    return tuple(found)


def _tensor(told: Mapping[str, Any], rest: memoryview, most_samples: int) -> tuple[str, NDArray[Any]]:
    name, shape, parameters = told.get("name"), told.get("shape"), _parameters(told, "an input")
    if name not in ("features", "images"):
        raise RefusedError(400, "the input is called features or images")
    allowed = ("FP32", "FP64") if name == "features" else ("UINT8",)
    kind: Any = told.get("datatype")
    if kind not in allowed:
        raise RefusedError(400, f"{name} have the datatype {' or '.join(allowed)}")
    rank = 2 if name == "features" else 4
    if (
        not isinstance(shape, list)
        or len(shape) != rank
        or not all(type(size) is int and 1 <= size <= 1 << 24 for size in shape)
    ):
        axes = "[samples, dimensions]" if rank == 2 else "[samples, height, width, channels]"
        raise RefusedError(400, f"the shape of {name} is {axes}, each at least 1")
    if shape[0] > most_samples:
        raise RefusedError(413, f"{shape[0]} samples are more than the {most_samples} of a request")
    size, dtype = math.prod(shape), DTYPES[kind]
    if "binary_data_size" in parameters:
        length = parameters["binary_data_size"]
        if type(length) is not int or length != len(rest) or length != size * dtype.itemsize:
            raise RefusedError(
                400,
                f"binary_data_size of {name} must be {size * dtype.itemsize} for its shape, and so many bytes follow",
            )
        return name, np.frombuffer(rest, dtype).reshape(shape)
    return name, _from_json(name, told.get("data"), shape, size, dtype)


def _from_json(name: str, data: Any, shape: Sequence[int], size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if not isinstance(data, list):
        raise RefusedError(400, f"{name} need data: a list of numbers, or raw bytes with binary_data_size")
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        raise RefusedError(400, f"the data of {name} are lists of different lengths") from None
    if array.dtype.kind not in "iuf" or array.size != size:
        raise RefusedError(400, f"the data of {name} must be {size} numbers, as the shape says")
    if dtype.kind == "u":
        if array.dtype.kind == "f" or array.min() < 0 or array.max() > 255:
            raise RefusedError(400, f"the data of {name} must be whole numbers from 0 to 255")
        return array.astype(dtype).reshape(shape)
    with np.errstate(over="ignore"):  # what overflows is refused as infinite
        return array.astype(dtype).reshape(shape)


def write_answer(
    model: str,
    id_: str,
    outputs: Mapping[str, NDArray[Any]],
    wanted: tuple[Wanted, ...],
    binary: bool,
    parameters: Mapping[str, Any],
) -> tuple[bytes, int | None]:
    """Return the bytes of an answer, and the length of its JSON header if tensors follow it."""
    told, raw = [], []
    for one in wanted or tuple(Wanted(name, binary) for name in outputs):
        if one.name not in outputs:
            raise RefusedError(400, f"there is no output {printable(one.name, 60)!r}, only {', '.join(outputs)}")
        array = outputs[one.name]
        entry: dict[str, Any] = {"name": one.name, "datatype": NAMES[array.dtype.str[1:]], "shape": array.shape}
        if one.binary:
            raw.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": array.nbytes}
        else:
            entry["data"] = array.reshape(-1)
        told.append(entry)
    answer: dict[str, Any] = {"model_name": model, "model_version": "1", "outputs": told, "parameters": parameters}
    if id_:
        answer["id"] = id_
    header = orjson.dumps(answer, option=_OUT)
    return (b"".join([header, *raw]), len(header)) if raw else (header, None)
