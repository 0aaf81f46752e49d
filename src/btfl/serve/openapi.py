"""The schema of what is read by hand, for ``/openapi.json``: one input, its shape and data, the sequence's flags."""

from __future__ import annotations

from typing import Any

_FLAG = {"type": "boolean"}
_INPUT = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"enum": ["features", "images"]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 4},
        "datatype": {"enum": ["FP32", "FP64", "UINT8"]},
        "parameters": {"type": "object", "properties": {"binary_data_size": {"type": "integer", "minimum": 0}}},
        "data": {"type": "array", "items": {}},
    },
}
_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string", "maxLength": 128},
        "parameters": {
            "type": "object",
            "properties": {
                "sequence_id": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "maxLength": 128}]},
                "sequence_start": _FLAG,
                "sequence_end": _FLAG,
                "binary_data_output": _FLAG,
            },
        },
        "inputs": {"type": "array", "items": _INPUT, "minItems": 1, "maxItems": 1},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "parameters": {"type": "object", "properties": {"binary_data": _FLAG}},
                },
            },
        },
    },
}
INFER_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _REQUEST},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""What ``infer`` takes."""

_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_CODES = {
    400: "What was sent is not right; the error says what would be.",
    401: "A token is needed.",
    403: "The token does not allow this.",
    404: "There is no such thing, or the token does not see it.",
    405: "The path knows other verbs.",
    409: "The id was used for another request on this stream.",
    413: "The request is too large.",
    415: "Requests are not compressed.",
    429: "Too many requests, or streams.",
    503: "The database is away: send the request again, with the same id.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {"application/json": {"schema": _ERROR}}} for code, said in _CODES.items()
}
"""How requests are refused."""
