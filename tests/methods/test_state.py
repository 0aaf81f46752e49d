"""Every method can be switched off in the middle of a stream: saved as JSON, restored, it goes on to the bit."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from btfl import Btfl, BtflSettings, Coherent
from btfl.errors import InputError
from btfl.methods.base import Method
from btfl.methods.heads import Oracle
from btfl.methods.registry import METHODS, find_method
from btfl.methods.state import numbers, pack, unpack
from btfl.runs.client import DeployedClient
from making import make_bundle, make_client, make_images, make_stream

VARIANTS = (
    *METHODS,
    "em[window=8]",
    "bbse[window=8]",
    "t3a[supports=1]",
    "t3a[supports=3]",
    "tent[steps=2,learning_rate=0.05]",
    "ttt[learning_rate=0.05]",
    "coherent[memory=soft]",
    "coherent[memory=events]",
    "btfl[count=after]",
)
BATCH = 4


@cache
def client() -> DeployedClient:
    return make_client()


@cache
def stream(takes: str) -> np.ndarray:
    return make_stream(client().bundle, 24) if takes == "features" else make_images(16)


def predict(method: Method, samples: np.ndarray) -> np.ndarray:
    parts = []
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        if isinstance(method, Oracle):
            method.tell(np.zeros(len(batch), dtype=np.int64))
        parts.append(method.predict(batch))
    return np.concatenate(parts)


def build(name: str) -> Method:
    return find_method(name).build(client())


@pytest.mark.parametrize("name", VARIANTS)
def test_a_restored_method_goes_on_as_if_it_had_not_stopped(name: str) -> None:
    whole, first, second = build(name), build(name), build(name)
    samples = stream(whole.takes)
    half = len(samples) // 2
    expected = predict(whole, samples)
    found = predict(first, samples[:half])
    second.restore(json.loads(json.dumps(first.state)))
    assert np.concatenate([found, predict(second, samples[half:])]).tobytes() == expected.tobytes()
    assert json.dumps(second.state) == json.dumps(whole.state)
    for column, values in whole.trace.items():
        assert second.trace[column].tobytes() == values.tobytes()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_method_that_has_seen_another_stream_takes_over_the_saved_one(name: str) -> None:
    first, second = build(name), build(name)
    samples = stream(first.takes)
    predict(first, samples[:BATCH])
    predict(second, samples[::-1][: 2 * BATCH])
    second.restore(first.state)
    assert predict(second, samples[BATCH:]).tobytes() == predict(first, samples[BATCH:]).tobytes()


@pytest.mark.parametrize("name", VARIANTS)
def test_reset_gives_the_first_answers_again(name: str) -> None:
    method = build(name)
    samples = stream(method.takes)[: 2 * BATCH]
    fresh, answers = method.state, predict(method, samples)
    method.reset()
    assert json.dumps(method.state) == json.dumps(fresh)
    assert predict(method, samples).tobytes() == answers.tobytes()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_fresh_methods_state_can_be_restored_too(name: str) -> None:
    method, other = build(name), build(name)
    samples = stream(method.takes)[:BATCH]
    answers = predict(method, samples)
    method.restore(json.loads(json.dumps(other.state)))
    assert predict(method, samples).tobytes() == answers.tobytes()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all that a state holds, and to its parts."""
    if path:
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value[:2])
        for key, inner in items:
            yield from leaves(inner, (*path, key))


def changed(state: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(state)
    inside: Any = result
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return result


@pytest.mark.parametrize("name", VARIANTS)
def test_a_wrong_state_is_refused_and_changes_nothing(name: str) -> None:
    method = build(name)
    samples = stream(method.takes)
    predict(method, samples[:BATCH])
    state = method.state
    wrongs: list[Any] = [{**state, "unknown": 1}, [1.0]]
    if state:
        wrongs += [{}, *({key: value for key, value in state.items() if key != left} for left in state)]
    values: tuple[Any, ...] = ("?", {}, [[]], [["a"]], float("nan"), float("inf"))
    wrongs += [changed(state, path, value) for path in leaves(state) for value in values]
    for wrong in wrongs:
        with pytest.raises(InputError):
            method.restore(wrong)
    assert json.dumps(method.state) == json.dumps(state)


@pytest.mark.parametrize(
    ("name", "of", "message"),
    [
        ("fedthe", {"history": [1.0, 2.0]}, r"history in the state has the shape \(2,\), not \(16\)"),
        ("fedthe", {"history": [[1.0], [2.0, 3.0]]}, "rows differ in length"),
        ("em", {"recent": [[0.5] * 4], "seen": 3, "shares": [0.25] * 4}, r"shape \(1, 4\), not \(3, 4\)"),
        ("em", {"recent": [], "seen": 0, "shares": [0.5, 0.5, 0.0, 0.0]}, "shares must be above 0"),
        ("bbse", {"recent": [], "seen": 0.5, "shares": [0.25] * 4}, "a whole number .* not 0.5"),
        ("t3a", {"supports": [], "entropies": [], "prototypes": [[0.0] * 16] * 4}, "each of the 4 classes"),
        ("ttt", {"weights": {}}, "the state lacks extractor"),
        ("tent", {"parameters": []}, "a list of 2 entries"),
        ("fedavg", {"a": 1.0}, "FedAvg keeps no memory"),
    ],
)
def test_the_error_says_what_is_wrong(name: str, of: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(name).restore(of)


def test_supports_above_the_setting_are_refused() -> None:
    many = build("t3a")
    predict(many, stream("features"))
    with pytest.raises(InputError, match="above the setting supports"):
        build("t3a[supports=1]").restore(many.state)


def test_weights_of_another_network_are_refused_by_shape() -> None:
    method = build("ttt")
    state = method.state
    name = next(iter(state["weights"]))
    with pytest.raises(InputError, match=f"mis-shaped: {name}"):
        method.restore({"weights": {**state["weights"], name: pack(np.zeros((2, 3), np.float32))}})


@given(st.integers(0, 100), st.floats(0.0, 20.0))
def test_every_state_that_pruning_leaves_can_be_restored(seed: int, to: float) -> None:
    bundle = make_bundle(seed=seed % 7)
    settings = BtflSettings(prune_above=to + 2, prune_to=to)
    method, fresh = Btfl(bundle, settings), Btfl(bundle, settings)
    for features in np.split(make_stream(bundle, 40, seed), 8):
        method.predict(features)
        fresh.restore(method.state)


@pytest.mark.parametrize("forgetting", [0.5, 0.99, 0.99999])
@pytest.mark.parametrize("memory", ["regimes", "soft", "events"])
def test_every_state_of_a_long_stream_can_be_restored(forgetting: float, memory: str) -> None:
    bundle = client().bundle
    method, fresh = (Coherent(bundle, forgetting=forgetting, memory=memory) for _ in range(2))
    features = np.repeat(make_stream(bundle, 1), 3_000, axis=0)
    for part in np.split(features, 3):
        method.predict(part)
        fresh.restore(json.loads(json.dumps(method.state)))


@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0),
                     elements=st.floats(allow_nan=False, allow_infinity=False, width=32)))  # fmt: skip
def test_a_packed_array_comes_back_to_the_bit(array: np.ndarray) -> None:
    again = unpack("it", json.loads(json.dumps(pack(array))))
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "change",
    [{"dtype": "float64"}, {"shape": [4]}, {"shape": [-3]}, {"shape": "3"}, {"base64": "???"}, {"base64": None},
     {"base64": pack(np.array([1, np.inf, 0], np.float32))["base64"]}],
)  # fmt: skip
def test_a_damaged_array_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="it in the state"):
        unpack("it", {**pack(np.arange(3, dtype=np.float32)), **change})


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], [1.0], ["1", "2"], [True, False], [1.0, None], {"a": 1}, 3.0])
def test_numbers_are_of_the_shape_asked_for(wrong: Any) -> None:
    assert numbers("it", [1, 2.5], (2,)).tolist() == [1.0, 2.5]
    with pytest.raises(InputError, match="it in the state"):
        numbers("it", wrong, (2,))
