"""``btfl export``: which method a graph decides by, and with what settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="exporting needs onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="exporting needs onnxruntime")

ENTRY = ("export", "zoo:cifar10-cnn-dir0.1-quick", "--client", "3", "--onnx", "client.onnx", "--method")


def test_a_method_may_have_settings(btfl: Callable[..., str], tmp_path: Path) -> None:
    btfl(*ENTRY, "coherent[precision=single]")
    session = onnxruntime.InferenceSession(str(tmp_path / "client.onnx"))
    assert {value.name: value.type for value in session.get_inputs()}["state"] == "tensor(float)"
    assert '"precision": "single"' in session.get_modelmeta().custom_metadata_map["method_settings"]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fedthe", "Known: btfl, coherent"),
        ("coherent[precison=single]", "Did you mean precision?"),
        ("btfl[squash=4]", "squash = 4 cannot be exported"),
        ("btfl[test_batch=1]", "a graph takes any batch"),
        ("btfl[count", "cannot read the method"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(btfl: Callable[..., str], method: str, words: str) -> None:
    said = " ".join(btfl(*ENTRY, method, ok=False).split())
    assert words in said
    assert "Traceback" not in said
