"""An exported graph as an object answers as the method does, remembers, and refuses what it cannot read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="exporting needs onnx")
pytest.importorskip("onnxruntime", reason="graphs run in onnxruntime")

from onnx import TensorProto, helper

from btfl import Btfl, Coherent
from btfl.errors import InputError
from btfl.export.write import export_whole
from btfl.graph import Graph
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.coherent.settings import CoherentSettings
from gaussians import World
from making import make_stream

BUNDLE = World().bundle()
STREAM = make_stream(BUNDLE, 60).astype(np.float32)
Settings = BtflSettings | CoherentSettings


def graph_of(tmp_path: Path, settings: Settings, samples: int = 1) -> Graph:
    return Graph(export_whole(BUNDLE, tmp_path / "client.onnx", settings), samples, threads=1)


def fed(graph: Graph, stream: np.ndarray, samples: int) -> np.ndarray:
    return np.concatenate([graph.predict(stream[i : i + samples]) for i in range(0, len(stream), samples)])


@pytest.mark.parametrize("samples", [1, 12])
@pytest.mark.parametrize("settings", [BtflSettings(), CoherentSettings()])
def test_it_answers_as_the_method_does(tmp_path: Path, settings: Settings, samples: int) -> None:
    method = Coherent(BUNDLE) if isinstance(settings, CoherentSettings) else Btfl(BUNDLE)
    graph, expected = graph_of(tmp_path, settings, samples), method.predict(STREAM)
    assert np.abs(fed(graph, STREAM, samples) - expected).max() < 1e-10
    assert graph.state == pytest.approx(method.state)
    assert graph.trace.e == pytest.approx(method.trace["e"][-samples:])
    assert set(graph.trace) == {"e", "all_external" if isinstance(settings, CoherentSettings) else "event"}


@pytest.mark.parametrize("settings", [BtflSettings(), CoherentSettings(precision="single")])
def test_it_goes_on_from_a_saved_state_and_forgets(tmp_path: Path, settings: Settings) -> None:
    graph = graph_of(tmp_path, settings)
    first = fed(graph, STREAM[:30], 1)
    saved, kept = json.dumps(graph.state), first.copy()
    rest = fed(graph, STREAM[30:], 1)
    assert (first == kept).all()  # what it returned is not written over
    other = graph_of(tmp_path, settings)
    other.restore(json.loads(saved))
    with pytest.raises(InputError, match="call predict first"):
        _ = other.trace
    assert (fed(other, STREAM[30:], 1) == rest).all()
    other.reset()
    assert (fed(other, STREAM[:30], 1) == first).all()


def test_what_it_cannot_take_is_a_sentence(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, BtflSettings())
    wrong: list[Any] = [STREAM[:2], STREAM[:1].astype(np.float64), STREAM[0], STREAM[:1].tolist()]
    for batch in wrong:
        with pytest.raises(InputError, match=r"takes features of shape \(1, 2\) and type float32"):
            graph.predict(batch)
    with pytest.raises(InputError, match="call predict first"):
        _ = graph.trace
    with pytest.raises(InputError, match="at least 1"):
        graph_of(tmp_path, BtflSettings(), samples=0)
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match="cannot read"):
        Graph(tmp_path / "broken.onnx")


@pytest.mark.parametrize(
    ("width", "outputs", "words"),
    [
        ("any", {"probabilities": "x", "new_state": "state"}, "which no exported graph does"),
        (10**13, {"probabilities": "x", "new_state": "state"}, "which no exported graph does"),
        (4, {"probabilities": "x"}, "holds no decision"),
        (4, {"answers": "x", "new_state": "state"}, "holds no decision"),
    ],
)
def test_a_strangers_graph_is_refused(tmp_path: Path, width: int | str, outputs: dict[str, str], words: str) -> None:
    kinds: dict[str, tuple[int, list[int | str]]] = {
        "x": (TensorProto.FLOAT, ["batch", width]),
        "state": (TensorProto.DOUBLE, [2]),
    }
    made = [helper.make_node("Identity", [source], [name]) for name, source in outputs.items()]
    described = [helper.make_tensor_value_info(name, *kinds[source]) for name, source in outputs.items()]
    graph = helper.make_graph(
        made, "g", [helper.make_tensor_value_info(n, *kind) for n, kind in kinds.items()], described
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (tmp_path / "strange.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=words):
        Graph(tmp_path / "strange.onnx")


def test_without_onnxruntime_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match="pip install onnxruntime"):
        Graph("client.onnx")


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"a": 1.0, "b": 1.0},
        {"a": float("nan"), "b": 1.0, "seen": 3},
        {"a": -1.0, "b": 1.0, "seen": 3},
        {"a": 1e9, "b": 1.0, "seen": 3},
        {"internal": 0.7, "mixture": 0.7, "a": 1.0, "b": 1.0, "seen": 3},
    ],
)
def test_a_state_that_no_stream_leads_to_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    settings = CoherentSettings() if "internal" in state else BtflSettings()
    graph = graph_of(tmp_path, settings)
    graph.predict(STREAM[:1])
    before = graph.state
    with pytest.raises(InputError, match="state"):
        graph.restore(state)
    assert graph.state == before
