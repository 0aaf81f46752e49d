"""A client in onnxruntime against the library, over a synthetical stream of 1,000 CIFAR-10 images.

Run as ``OMP_NUM_THREADS=1 python benchmarks/onnx_agreement.py`` with CIFAR-10 in the cache (``btfl data get cifar10``).
A small federation is trained first, so that the heads, the likelihoods and the events are real ones; the other domain
is left out, so half of the stream is corrupted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from btfl import Btfl, ClientBundle
from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.streams import StreamSettings, make_manifest, render
from btfl.data.subset import take
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.export.write import export_split, export_whole
from btfl.models.forward import extract
from btfl.models.inputs import to_tensor
from btfl.pixels.types import Images
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def one_by_one(
    images: Images, predict: Callable[[Images], tuple[np.ndarray, int]]
) -> tuple[np.ndarray, list[int], float]:
    """Return the probabilities, the events, and the median milliseconds of a call."""
    rows, events, taken = [], [], []
    for image in images:
        start = time.perf_counter()
        row, event = predict(image[None])
        taken.append(time.perf_counter() - start)
        rows.append(row)
        events.append(event)
    return np.concatenate(rows), events, 1000 * float(np.median(taken))


def main() -> None:
    """Train, export, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--images", type=int, default=21_000, help="of CIFAR-10, dealt to 4 clients")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    source = take(load_source("cifar10", shift="none"), arguments.images)
    partition = make_partition(source, PartitionSettings(clients=4, alpha=0.1), seed=0)
    settings = TrainingSettings.for_model(arguments.model, rounds=arguments.rounds, local_epochs=1)
    recipe = make_recipe("fedavg", settings, source.sample_shape, len(source.classes))
    federation = train_federation(recipe, FederatedData(source, partition), LocalEngine())
    number = max(range(4), key=lambda number: len(partition.part_at(number, 0).test))
    client = federation.client(number)
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    images = render(source, manifest, number)["synthetical"].values[:1_000]

    reference = Btfl(client.bundle)
    expected = reference.predict(extract(client.extractor(), images))
    events = reference.trace.event.tolist()
    network, adapter = client.extractor(), Btfl(client.bundle)

    def library(batch: Images) -> tuple[np.ndarray, int]:
        with torch.inference_mode():
            features = network.features(to_tensor(batch)).numpy()
        return adapter.predict(features), int(adapter.trace.event[0])

    with tempfile.TemporaryDirectory() as folder:
        whole = session(export_whole(client, Path(folder) / "client.onnx"))
        path, bundle = export_split(client, Path(folder) / "extractor.onnx")
        extractor, core = session(path), Btfl(ClientBundle.load(bundle))
        size = {"one ONNX graph": (Path(folder) / "client.onnx").stat().st_size, "ONNX and numpy": path.stat().st_size}
    state = np.ones(2)

    def graph(batch: Images) -> tuple[np.ndarray, int]:
        nonlocal state
        probabilities, _, event, state = whole.run(None, {"images": batch, "state": state})
        return probabilities, int(event[0])

    def split(batch: Images) -> tuple[np.ndarray, int]:
        return core.predict(extractor.run(None, {"images": batch})[0]), int(core.trace.event[0])

    print(f"{arguments.model}, {len(images)} images, {np.count_nonzero(events)} events; state after the last one:")
    print(f"a = {reference.state['a']!r}, b = {reference.state['b']!r}\n")
    print("| way | worst difference of a probability | same events | same a and b | ms an image | KB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, predict in (("the library, one by one", library), ("one ONNX graph", graph), ("ONNX and numpy", split)):
        found, their_events, milliseconds = one_by_one(images, predict)
        states = {"the library, one by one": adapter.state, "ONNX and numpy": core.state}
        now = states.get(name, {"a": float(state[0]), "b": float(state[1])})
        same = (now["a"], now["b"]) == (reference.state["a"], reference.state["b"])
        worst = np.abs(found - expected).max()
        kilobytes = f"{size[name] / 1e3:.0f}" if name in size else "–"
        print(f"| {name} | {worst:.1e} | {their_events == events} | {same} | {milliseconds:.2f} | {kilobytes} |")


if __name__ == "__main__":
    main()
