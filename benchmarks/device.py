"""What a device pays beside the bare forward pass in onnxruntime: both methods, both forms; ratios in one run.

    OMP_NUM_THREADS=1 python benchmarks/device.py --models zoo:cifar10-cnn-dir0.1,resnet20,cct4
    OMP_NUM_THREADS=1 python benchmarks/device.py --models zoo:cifar10-cnn-dir0.1 --bound        # and --any-batch

The bare forward pass is one ONNX graph: the extractor, the global head and its softmax. Beside it: one graph that
decides, in double and in single precision, and the extractor's graph before btfl's core, with compiled steps and in
numpy alone. Floors say what neither a graph nor numpy can go below: a graph with three heads and all inputs and outputs
of a decision, but none; the extractor's graph before one numpy product; and, at batch 1, before Coherent's arithmetic
in the fewest calls of numpy that it can be written in, with no check of anything (left out where logits overflow, as
those of untrained networks do). A model is a zoo entry, with its first client and 64 images of its five streams, or the
name of one, which is then untrained, with made-up images.

Every session is told the batch (``--any-batch``: none is). ``--bound`` lets graphs read and write the same arrays at
every call, and times ``btfl.graph.Graph``, which does so, too. Every round times each case once, one after another,
after a call that is not timed; what is counted is this thread's processor time. A ratio is that of one round; the table
has the median and the middle half of the rounds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, compose, helper

from btfl import Btfl, ClientBundle, Coherent
from btfl.core.heads import LinearHead
from btfl.data.streams import make_manifest, render
from btfl.experiments.experiment import Experiment
from btfl.experiments.load import load_data
from btfl.export.before import before
from btfl.export.coherent import coherent_graph
from btfl.export.decision import decision_graph
from btfl.export.extractor import extractor_graph
from btfl.export.nodes import IR_VERSION, OPSET, Nodes, features, logits
from btfl.export.sources import find_fleet
from btfl.graph import Graph
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.coherent.memory import ThreeRegimes
from btfl.methods.coherent.settings import CoherentSettings
from btfl.pixels.types import Images
from btfl.studies.speed.clients import synthetic_clients, synthetic_images
from btfl.zoo.start import find_start

Case = Callable[[Images], Any]
BATCHES, SAMPLES = (1, 32), 64
MORE = ("e", "all_external")
STATES = {2: np.ones(2), 4: np.array([1 / 3, 1 / 3, 1.0, 1.0])}


@dataclass(frozen=True)
class Device:
    """What is timed: a client, and what it sees."""

    extractor: onnx.ModelProto
    bundle: ClientBundle
    images: Images

    def before(self, decision: onnx.ModelProto) -> bytes:
        """Return extractor and decision as one graph."""
        first = compose.add_prefix(self.extractor, "extractor_", rename_inputs=False, rename_outputs=False)
        del first.metadata_props[:]
        whole: onnx.ModelProto = compose.merge_models(first, decision, io_map=[("features", "features")], name="whole")
        content: bytes = whole.SerializeToString()
        return content


def device_of(model: str) -> Device:
    """Return a zoo entry's first client with images of its streams, or an untrained one with made-up images."""
    if not model.startswith("zoo:"):
        client = synthetic_clients(model, ["fedavg"])["fedavg"]
        graph = extractor_graph(client.extractor(), before(client.model))
        return Device(graph, client.bundle, synthetic_images(SAMPLES, "stream"))
    experiment, fleet = Experiment(**find_start(model).experiment), find_fleet(model)
    data = load_data(experiment)
    manifest = make_manifest(data.source, data.partition, experiment.stream_settings(), experiment.stream_seed)
    number = next(iter(fleet.bundles))
    streams = [stream.values for stream in render(data.source, manifest, number).values()]
    some = np.concatenate([stream[: -(-SAMPLES // len(streams))] for stream in streams])[:SAMPLES]
    assert fleet.extractor is not None
    return Device(fleet.extractor(), fleet.bundle(number), some)


def bare_decision(bundle: ClientBundle) -> onnx.ModelProto:
    """Return the global head and its softmax, in single precision as any exporter writes it."""
    g, head = Nodes("head"), bundle.global_head
    bias = np.zeros(head.classes) if head.bias is None else head.bias
    flat = g("Gemm", "features", g.constant(head.weight.T, np.float32), g.constant(bias, np.float32))
    g("Softmax", flat, output="probabilities", axis=-1)
    answers = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", bundle.classes])
    return _model(g, bundle, [], [answers])


def floor_decision(bundle: ClientBundle) -> onnx.ModelProto:
    """Return three heads, mixed in equal parts, with all inputs and outputs of a decision, but none."""
    g = Nodes("floor")
    scores = logits(g, features(g), [bundle.personal_head, bundle.global_head, bundle.global_head])
    g("MatMul", g.constant(np.full(3, 1 / 3)), g("Softmax", scores, axis=-1), output="probabilities")
    for place, name in enumerate(MORE):
        g("Gather", "probabilities", g.constant(place, np.int64), axis=1, output=name)
    g("Identity", "state", output="new_state")
    outputs = [
        g.floats("probabilities", "batch", bundle.classes),
        g.floats("e", "batch"),
        g.floats("all_external", "batch"),
    ]
    return _model(g, bundle, [g.floats("state", 4)], [*outputs, g.floats("new_state", 4)])


def _model(
    g: Nodes, bundle: ClientBundle, more: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", bundle.dimensions])
    graph = helper.make_graph(g.nodes, "decision", [features, *more], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def cases_of(device: Device, batch: int, any_batch: bool, bound: bool) -> dict[str, Case]:
    """Return what is timed, by name; the bare forward pass first."""
    bundle = device.bundle
    weights = np.concatenate([bundle.global_head.weight] * 3).T.copy()
    extract = called(session(device.extractor.SerializeToString(), batch, any_batch))
    graph = bound_to_arrays if bound else called
    graphs = {
        "bare": bare_decision(bundle),
        "floor, one graph": floor_decision(bundle),
        "BTFL, one graph": decision_graph(bundle),
        "Coherent, one graph": coherent_graph(bundle),
        "BTFL, one graph, single": decision_graph(bundle, BtflSettings(precision="single")),
        "Coherent, one graph, single": coherent_graph(bundle, CoherentSettings(precision="single")),
    }
    cases: dict[str, Case] = {
        name: graph(session(device.before(decision), batch, any_batch)) for name, decision in graphs.items()
    }
    if bound:
        cases |= {
            f"{name} in btfl.graph.Graph": whole_graph(device.before(decision), batch)
            for name, decision in graphs.items()
            if name.endswith("single")
        }
    core: dict[str, Case] = {"floor, ONNX and numpy": lambda features: features.astype(np.float64) @ weights}
    for form, wanted in (("compiled steps", "1"), ("numpy", "0")):
        os.environ["BTFL_COMPILED"] = wanted
        for name, method in (("BTFL", Btfl(bundle)), ("Coherent", Coherent(bundle))):
            if (method.compiled is not None) == (form == "compiled steps"):
                core[f"{name}, ONNX and {form}"] = method.predict
    with np.errstate(all="ignore"):
        if batch == 1 and np.isfinite(fewest_calls(bundle)(extract(device.images[:1]))).all():
            core["floor, fewest calls of numpy"] = fewest_calls(bundle)
    return {**cases, **{name: _after(extract, decide) for name, decide in core.items()}}


def fewest_calls(bundle: ClientBundle) -> Case:
    """Return Coherent's arithmetic in seven calls of numpy: it trusts its input, and logits may overflow."""
    method = Coherent(bundle)
    heads = [head for head in method.heads if isinstance(head, LinearHead)]
    weights = np.concatenate([head.weight for head in heads]).T.copy()
    bias = np.concatenate([np.zeros(head.classes) if head.bias is None else head.bias for head in heads])
    columns = np.stack([np.ones(bundle.classes), method.share_ratios], axis=1)
    shape, (from_fedavg, from_generative) = (len(heads), bundle.classes), method.global_weights
    memory = ThreeRegimes(bundle, method.settings)

    def decide(features: Any) -> Any:
        logits = features.astype(np.float64).dot(weights)
        logits += bias
        softmaxes = np.exp(logits, logits).reshape(shape)
        (local, _), (fedavg, _), (generative, with_ratios) = softmaxes.dot(columns).tolist()
        e, _ = memory.take_one(log(with_ratios / generative))
        return np.array(((1.0 - e) / local, e * from_fedavg / fedavg, e * from_generative / generative)).dot(softmaxes)

    return decide


def session(model: bytes, batch: int, any_batch: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not any_batch:
        options.add_free_dimension_override_by_name("batch", batch)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def first_state(graph: onnxruntime.InferenceSession) -> NDArray[Any] | None:
    """Return what a graph's state begins with, in its type; None if it has none."""
    for value in graph.get_inputs():
        if value.name == "state":
            return STATES[value.shape[0]].astype(np.float32 if value.type == "tensor(float)" else np.float64)
    return None


def called(graph: onnxruntime.InferenceSession) -> Case:
    """Call a graph as the documentation does; a state goes from call to call."""
    names, run, state = [output.name for output in graph.get_outputs()], graph.run, first_state(graph)
    if state is None:
        return lambda images: run(names, {"images": images})[0]

    def predict(images: Images) -> Any:
        nonlocal state
        probabilities, _, _, state = run(names, {"images": images, "state": state})
        return probabilities

    return predict


def bound_to_arrays(graph: onnxruntime.InferenceSession) -> Case:
    """Call a graph that reads and writes the same arrays at every call; two sets, between which the state goes."""
    sets: dict[int, list[tuple[Any, Mapping[str, NDArray[Any]]]]] = {}
    names, state = [output.name for output in graph.get_outputs()], first_state(graph)

    def bind(images: Images) -> list[tuple[Any, Mapping[str, NDArray[Any]]]]:
        inputs = {"images": images.copy(), **({} if state is None else {"state": state})}
        arrays = [dict(zip(names, graph.run(names, inputs), strict=True)) for _ in range(2)]
        found: list[tuple[Any, Mapping[str, NDArray[Any]]]] = []
        for own, others in (arrays, arrays[::-1]):
            binding = graph.io_binding()
            read = {"images": inputs["images"], **({} if state is None else {"state": others["new_state"]})}
            for bind_one, values in ((binding.bind_input, read), (binding.bind_output, own)):
                for name, array in values.items():
                    bind_one(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
            found.append((binding, {**own, "images": inputs["images"]}))
        return found

    def predict(images: Images) -> Any:
        if len(images) not in sets:
            sets[len(images)] = bind(images)
        pair = sets[len(images)]
        pair.reverse()
        binding, arrays = pair[0]
        arrays["images"][...] = images
        graph.run_with_iobinding(binding)
        return arrays["probabilities"]

    return predict


def whole_graph(model: bytes, batch: int) -> Case:
    """Return what a user calls: ``btfl.graph.Graph``, with its checks, and answers of the user's own."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "client.onnx"
        path.write_bytes(model)
        return Graph(path, batch, threads=1).predict


def _after(extract: Case, decide: Case) -> Case:
    return lambda images: decide(extract(images))


def time_rounds(cases: dict[str, Case], images: Images, batch: int, rounds: int) -> NDArray[np.float64]:
    """Return (rounds, cases) microseconds of processor time a sample."""
    parts = [images[i : i + batch] for i in range(0, len(images), batch)]

    def once(case: Case) -> float:
        case(parts[0])  # what the case before has driven out of the caches is no part of the cost
        begun = thread_time()
        for part in parts:
            case(part)
        return 1e6 * (thread_time() - begun) / len(images)

    return np.array([[once(case) for case in cases.values()] for _ in range(rounds)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="zoo:cifar10-cnn-dir0.1,resnet20,cct4", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=30, help="how often each case is timed")
    parser.add_argument("--any-batch", action="store_true", help="sessions are not told the batch")
    parser.add_argument("--bound", action="store_true", help="graphs read and write the same arrays at every call")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | path | batch 1, us | x bare | batch 32, us | x bare |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for model in options.models.split(","):
        device = device_of(model)
        rows: dict[str, list[str]] = {}
        for batch in BATCHES:
            cases = cases_of(device, batch, options.any_batch, options.bound)
            times = time_rounds(cases, device.images, batch, options.rounds)
            for place, name in enumerate(cases):
                low, middle, high = np.quantile(times[:, place] / times[:, 0], [0.25, 0.5, 0.75])
                told = f"{np.median(times[:, place]):.0f} | {middle:.2f} ({low:.2f} to {high:.2f})"
                rows.setdefault(name, []).append(told)
        for name, columns in rows.items():
            print(f"| {model} | {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
