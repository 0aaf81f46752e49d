"""Weights stored in fewer bytes: the file is smaller, and the extractor nearly the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from btfl import Btfl
from btfl.errors import UnknownNameError
from btfl.export.before import before
from btfl.export.extractor import extractor_graph
from btfl.export.smaller import StoredAs, with_weights
from btfl.export.write import export_split, export_whole
from btfl.methods.coherent.settings import CoherentSettings
from small import images_of, train_small


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    client = train_small("fedavg").client(0)
    return extractor_graph(client.extractor(), before(client.model))


def features_of(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"images": images_of(0)})[0])


@pytest.mark.parametrize(("stored", "share", "error"), [("float16", 0.55, 1e-3), ("int8", 0.32, 0.03)])
def test_fewer_bytes_and_nearly_the_same_features(
    graph: onnx.ModelProto, stored: StoredAs, share: float, error: float
) -> None:
    smaller = with_weights(graph, stored)
    onnx.checker.check_model(smaller)
    assert smaller.ByteSize() < share * graph.ByteSize()
    exact, found = features_of(graph), features_of(smaller)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - exact).max() < error * np.abs(exact).max()


def test_float32_is_what_it_was_and_other_kinds_are_refused(graph: onnx.ModelProto) -> None:
    assert with_weights(graph, "float32").SerializeToString() == graph.SerializeToString()
    with pytest.raises(UnknownNameError, match="float16, float32, int8"):
        with_weights(graph, "int4")  # type: ignore[arg-type]


def test_no_weight_is_off_by_more_than_half_a_step_of_its_channel(graph: onnx.ModelProto) -> None:
    found = {one.name: numpy_helper.to_array(one) for one in with_weights(graph, "int8").graph.initializer}
    exact = {one.name: numpy_helper.to_array(one) for one in graph.graph.initializer}
    steps = [name.removesuffix("_scale") for name in found if name.endswith("_scale")]
    assert steps
    for name in steps:
        scale, whole = found[f"{name}_scale"], found[f"{name}_int8"]
        axis = 0 if len(scale) == whole.shape[0] else -1
        along = np.expand_dims(scale, tuple(range(1, whole.ndim)) if axis == 0 else tuple(range(whole.ndim - 1)))
        assert (np.abs(whole * along - exact[name]) <= 0.5001 * along).all()


@pytest.mark.slow
def test_both_forms_of_a_client_decide_with_it(tmp_path: Path) -> None:
    client, images = train_small("fedavg").client(0), images_of(0)
    extractor, _ = export_split(client, tmp_path / "small.onnx", weights="int8")
    features = features_of(onnx.load(extractor))
    expected = Btfl(client.bundle).predict(features)
    for name, settings, state in (("b", None, np.ones(2)), ("c", CoherentSettings(), np.array([1 / 3, 1 / 3, 1, 1]))):
        path = export_whole(client, tmp_path / f"{name}.onnx", settings, weights="int8")
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        answers = np.asarray(session.run(None, {"images": images, "state": state})[0])
        assert answers.sum(axis=1) == pytest.approx(1)
        if settings is None:
            assert answers == pytest.approx(expected, abs=1e-5)
