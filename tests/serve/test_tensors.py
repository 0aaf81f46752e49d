"""Requests of the Open Inference Protocol: what is right is read exactly, and everything else is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("orjson", reason="btfl[serve] is not installed")

from btfl.serve.refusal import RefusedError
from btfl.serve.tensors import Wanted, read_request, write_answer

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
matrices = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=finite)


def request(array: np.ndarray, **more: Any) -> dict[str, Any]:
    told = {"name": "features", "datatype": "FP64", "shape": list(array.shape), "data": array.ravel().tolist()}
    return {"inputs": [told], **more}


def read(told: Any, most: int = 100) -> Any:
    return read_request(json.dumps(told).encode(), None, most)


@given(matrices)
def test_numbers_come_through_json_and_bytes_to_the_bit(array: np.ndarray) -> None:
    assert read(request(array)).array.tobytes() == array.tobytes()
    nested = request(array)
    nested["inputs"][0]["data"] = array.tolist()
    assert read(nested).array.tobytes() == array.tobytes()
    head = request(array)
    del head["inputs"][0]["data"]
    head["inputs"][0]["parameters"] = {"binary_data_size": array.nbytes}
    text = json.dumps(head).encode()
    assert read_request(text + array.tobytes(), str(len(text)), 100).array.tobytes() == array.tobytes()


@given(matrices)
def test_answers_come_through_json_and_bytes_to_the_bit(array: np.ndarray) -> None:
    outputs = {"probabilities": array, "e": array[:, 0].copy()}
    content, header = write_answer("m", "id", outputs, (), False, {})
    assert header is None
    told = json.loads(content)
    assert told["id"] == "id"
    for one in told["outputs"]:
        assert np.array(one["data"], np.float64).tobytes() == outputs[one["name"]].tobytes()
    content, header = write_answer("m", "", outputs, (Wanted("e", True),), False, {})
    assert header is not None
    assert content[header:] == outputs["e"].tobytes()


def test_an_id_and_a_sequence_are_read() -> None:
    told = request(np.ones((1, 2)), id="x", parameters={"sequence_id": 7, "sequence_start": True})
    asked = read(told)
    assert (asked.id, asked.sequence, asked.start, asked.end) == ("x", "7", True, False)
    assert read(request(np.ones((1, 2)), parameters={"sequence_id": "camera"})).sequence == "camera"
    assert read(request(np.ones((1, 2)), parameters={"sequence_id": 0})).sequence == ""


WRONG = [
    [],
    {},
    {"inputs": []},
    {"inputs": [1]},
    {"inputs": [{}]},
    request(np.ones((1, 2)), id=5),
    request(np.ones((1, 2)), id="x" * 129),
    request(np.ones((1, 2)), id="a\nb"),
    request(np.ones((1, 2)), parameters=[]),
    request(np.ones((1, 2)), parameters={"sequence_id": -1}),
    request(np.ones((1, 2)), parameters={"sequence_id": True}),
    request(np.ones((1, 2)), parameters={"sequence_id": 2**64}),
    request(np.ones((1, 2)), parameters={"sequence_id": 1.5}),
    request(np.ones((1, 2)), parameters={"sequence_start": True}),
    request(np.ones((1, 2)), parameters={"sequence_id": 1, "sequence_start": "yes"}),
    request(np.ones((1, 2)), outputs={}),
    request(np.ones((1, 2)), outputs=[{"name": 1}]),
    request(np.ones((1, 2)), outputs=[{"name": "e", "parameters": {"classification": 3}}]),
]
CHANGES: list[dict[str, Any]] = [
    {"name": "pixels"},
    {"name": ["features"]},
    {"datatype": "INT64"},
    {"datatype": None},
    {"shape": [2]},
    {"shape": [1, 0]},
    {"shape": [1, -2]},
    {"shape": [True, 2]},
    {"shape": [1, 2.0]},
    {"shape": [3, 2]},
    {"shape": "12"},
    {"data": None},
    {"data": ["1", "2"]},
    {"data": [[1], [2, 3]]},
    {"data": [None, 1]},
    {"data": [{}, 1]},
    {"data": [True, False]},
    {"data": [1, 2, 3]},
    {"parameters": {"binary_data_size": 16}},
    {"parameters": {"binary_data_size": "16"}},
    {"parameters": 3},
    {"name": "images", "datatype": "UINT8", "shape": [1, 2, 1, 1], "data": [1, 256]},
    {"name": "images", "datatype": "UINT8", "shape": [1, 2, 1, 1], "data": [1, 2.5]},
]


@pytest.mark.parametrize(
    "told", WRONG + [{"inputs": [{**request(np.ones((1, 2)))["inputs"][0], **c}]} for c in CHANGES]
)
def test_what_is_wrong_is_refused_in_a_sentence(told: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        read(told)
    assert refused.value.status == 400
    assert len(str(refused.value)) > 10


def test_too_many_samples_are_too_large() -> None:
    with pytest.raises(RefusedError) as refused:
        read(request(np.ones((101, 2))))
    assert refused.value.status == 413


@given(st.binary(max_size=300), st.none() | st.text(max_size=8) | st.integers(0, 400).map(str))
def test_any_bytes_are_read_or_refused(body: bytes, header: str | None) -> None:
    with suppress(RefusedError):  # anything else that is raised is a mistake of ours
        read_request(body, header, 100)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "shape", "data"]), inner),
    max_leaves=8,
)


@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    told = request(np.ones((1, 2)), id="x", parameters={"sequence_id": 1}, outputs=[{"name": "e"}])
    place = data.draw(st.sampled_from([told, told["inputs"][0], told["parameters"], told["outputs"][0]]))
    place[data.draw(st.sampled_from([*sorted(place), "parameters"]))] = data.draw(json_values)
    with suppress(RefusedError):
        read(told)
