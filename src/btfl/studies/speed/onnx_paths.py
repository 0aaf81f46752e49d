"""BTFL in onnxruntime, for the table of costs: as one graph, and as the extractor's graph before the core."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.methods.btfl.method import Btfl
from btfl.pixels.types import Images
from btfl.runs.client import DeployedClient

ONNX_PATHS: Mapping[str, str] = {"onnx": "BTFL, one ONNX graph", "onnx-split": "BTFL, ONNX and the core"}


def has_onnx() -> bool:
    """Return whether clients can be exported and run here."""
    return all(find_spec(name) is not None for name in ("onnx", "onnxscript", "onnxruntime"))


def onnx_path(name: str, client: DeployedClient) -> Callable[[Images], NDArray[Any]]:
    """Export the client; return a function from images to probabilities, on one thread."""
    from btfl.export.write import export_split, export_whole

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.onnx"
        if name == "onnx":
            whole = _session(export_whole(client, path))
            state = np.ones(2)

            def predict(images: Images) -> NDArray[Any]:
                nonlocal state
                probabilities, _, _, state = whole.run(None, {"images": images, "state": state})
                return np.asarray(probabilities)

            return predict
        extractor = _session(export_split(client, path)[0])
    adapter = Btfl(client.bundle)

    def predict_split(images: Images) -> NDArray[Any]:
        return adapter.predict(extractor.run(None, {"images": images})[0])

    return predict_split


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
