"""What a device pays beside the bare forward pass in onnxruntime: both methods, both forms; ratios in one run.

    OMP_NUM_THREADS=1 python benchmarks/device.py --models cnn,resnet20,cct4

The bare forward pass is one ONNX graph: the extractor, the global head and its softmax. Beside it: one graph that
decides, and the extractor's graph before btfl's numpy core. Every round times each case once, one after another, so
that a busy machine slows all alike; what is counted is this thread's processor time. A ratio is that of one round; the
table has the median and the middle half of the rounds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, compose, helper

from btfl import Btfl, Coherent
from btfl.export.before import before
from btfl.export.extractor import extractor_graph
from btfl.export.nodes import IR_VERSION, OPSET, Nodes
from btfl.export.write import export_split, export_whole
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.coherent.settings import CoherentSettings
from btfl.pixels.types import Images
from btfl.runs.client import DeployedClient
from btfl.studies.speed.clients import synthetic_clients, synthetic_images

Case = Callable[[Images], Any]
BATCHES = (1, 32)


def session(model: Path | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def bare_graph(client: DeployedClient) -> bytes:
    """Return extractor, global head and softmax as one graph, in single precision as any exporter writes it."""
    bundle, g = client.bundle, Nodes("head")
    head = bundle.global_head
    flat = g("MatMul", "features", g.constant(head.weight.T, np.float32))
    bias = np.zeros(head.classes) if head.bias is None else head.bias
    g("Softmax", g("Add", flat, g.constant(bias, np.float32)), output="probabilities", axis=-1)
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", bundle.dimensions])
    answers = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", bundle.classes])
    graph = helper.make_graph(g.nodes, "head", [features], [answers])
    last = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    first = extractor_graph(client.extractor(), before(client.model))
    del first.metadata_props[:]
    first = compose.add_prefix(first, "extractor_", rename_inputs=False, rename_outputs=False)
    whole: onnx.ModelProto = compose.merge_models(first, last, io_map=[("features", "features")], name="bare")
    content: bytes = whole.SerializeToString()
    return content


def cases_of(client: DeployedClient, folder: Path) -> dict[str, Case]:
    """Return what is timed, by name; the bare forward pass first."""
    bare = session(bare_graph(client))
    cases: dict[str, Case] = {"bare": lambda images: bare.run(None, {"images": images})}
    extractor = session(export_split(client, folder / "extractor.onnx")[0])
    settings = {"BTFL": (BtflSettings(), Btfl, 2), "Coherent": (CoherentSettings(), Coherent, 4)}
    for title, (chosen, method, size) in settings.items():
        whole = session(export_whole(client, folder / f"{title}.onnx", chosen))  # type: ignore[arg-type]
        cases[f"{title}, one graph"] = _with_state(whole, size)
        cases[f"{title}, ONNX and numpy"] = _before_core(extractor, method(client.bundle).predict)
    return cases


def _with_state(whole: onnxruntime.InferenceSession, size: int) -> Case:
    state = np.ones(2) if size == 2 else np.array([1 / 3, 1 / 3, 1.0, 1.0])

    def predict(images: Images) -> Any:
        nonlocal state
        probabilities, _, _, state = whole.run(None, {"images": images, "state": state})
        return probabilities

    return predict


def _before_core(extractor: onnxruntime.InferenceSession, predict: Callable[[NDArray[Any]], Any]) -> Case:
    return lambda images: predict(extractor.run(None, {"images": images})[0])


def time_rounds(cases: dict[str, Case], batch: int, rounds: int) -> NDArray[np.float64]:
    """Return (rounds, cases) microseconds of processor time a sample."""
    images = synthetic_images(64, "stream")
    parts = [images[i : i + batch] for i in range(0, len(images), batch)]

    def once(case: Case) -> float:
        begun = time.thread_time()
        for part in parts:
            case(part)
        return 1e6 * (time.thread_time() - begun) / len(images)

    for case in cases.values():
        once(case)
    return np.array([[once(case) for case in cases.values()] for _ in range(rounds)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="cnn,resnet20,cct4", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=30, help="how often each case is timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | path | batch 1, us | x bare | batch 32, us | x bare |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for model in options.models.split(","):
        client = synthetic_clients(model, ["fedavg"])["fedavg"]
        with tempfile.TemporaryDirectory() as folder:
            cases = cases_of(client, Path(folder))
            found = [time_rounds(cases, batch, options.rounds) for batch in BATCHES]
        for place, name in enumerate(cases):
            told = []
            for times in found:
                low, middle, high = np.quantile(times[:, place] / times[:, 0], [0.25, 0.5, 0.75])
                told += [f"{np.median(times[:, place]):.0f}", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
            print(f"| {model} | {name} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
