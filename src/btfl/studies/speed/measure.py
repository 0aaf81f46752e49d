"""What adapting costs, image in and probabilities out, beside the bare forward pass of the same network.

Seconds depend on the machine and on what else it does; ratios much less. So the cases take turns of a
few calls, a repeat is summed up by the median of its calls, and each repeat gives a ratio of its own.
"""

from __future__ import annotations

import gc
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from btfl.benchmark.evaluate import Evaluation
from btfl.data.streams import render
from btfl.methods.heads import Oracle
from btfl.methods.registry import find_method
from btfl.models.inputs import to_tensor
from btfl.models.threads import one_thread
from btfl.pixels.types import Images
from btfl.randomness import generator
from btfl.runs.client import DeployedClient
from btfl.runs.costs import FORWARD, Cost, write_costs
from btfl.runs.layout import RunFiles
from btfl.studies.speed.clients import synthetic_clients, synthetic_images
from btfl.studies.speed.onnx_paths import ONNX_PATHS, onnx_path

BLOCK = 8  # calls in a turn: a device does one thing over and over, and so finds its caches warm
SLOW_SHARE = 20  # a method that trains at test time sees a twentieth of the samples: it takes that much longer
Predict = Callable[[Images], NDArray[Any]]


def measure_costs(
    models: Sequence[str],
    methods: Sequence[str],
    batches: Sequence[int] = (1, 32),
    samples: int = 320,
    repeats: int = 5,
    memory: bool = True,
) -> Iterator[Cost]:
    """Time every method with every model on one thread; the bare forward pass comes first.

    Parameters
    ----------
    models, methods : their names; methods may be ``onnx`` and ``onnx-split`` too
    batches : samples at a time
    samples : of a repeat; methods that train at test time see a twentieth
    repeats : how often each is timed
    memory : also measure each one's peak memory, in a process of its own
    """
    with one_thread():
        for model in models:
            recipes = [_recipe(name) for name in methods if name not in ONNX_PATHS]
            clients = synthetic_clients(model, list(dict.fromkeys(["fedavg", *recipes])))
            clients[FORWARD] = clients["fedavg"]
            peaks = {name: peak_memory(name, clients[_recipe(name)]) for name in (FORWARD, *methods) if memory}
            for batch in batches:
                images = synthetic_images(max(samples, batch), "stream")
                yield from _measure(model, methods, clients, images, batch, repeats, peaks)


def measure_run(evaluation: Evaluation, folder: Path, samples: int = 160, repeats: int = 3) -> list[Cost]:
    """Time a run's methods at batch 1 on images of client 0's own stream, and save the costs beside the results."""
    names = [method.name for method in evaluation.methods if not issubclass(method.method, Oracle)]
    clients = {recipe: federation.client(0) for recipe, federation in evaluation.federations.items()}
    images = render(evaluation.source, evaluation.manifest, 0)["original_ind"].values[:samples]
    first = next(iter(clients.values()))
    with one_thread():
        costs = _measure(first.model["name"], names, {FORWARD: first, **clients}, images, 1, repeats)
    write_costs(costs, RunFiles(folder).costs)
    return costs


def make_path(name: str, client: DeployedClient) -> Predict:
    """Return a function from uint8 images, (n, height, width, channels), to probabilities, (n, classes)."""
    if name in ONNX_PATHS:
        return onnx_path(name, client)
    network = client.extractor()
    if name == FORWARD:

        def forward(images: Images) -> NDArray[Any]:
            with torch.inference_mode():
                return network(to_tensor(images)).numpy()  # type: ignore[no-any-return]

        return forward
    adapter = find_method(name).build(client)
    if adapter.takes == "images":
        return adapter.predict

    def with_features(images: Images) -> NDArray[Any]:
        with torch.inference_mode():
            features = network.features(to_tensor(images)).numpy()
        return adapter.predict(features)

    return with_features


def _measure(
    model: str,
    methods: Sequence[str],
    clients: Mapping[str, DeployedClient],
    images: Images,
    batch: int,
    repeats: int,
    peaks: Mapping[str, float | None] | None = None,
) -> list[Cost]:
    """Time the methods on clients given by recipe; the bare forward pass is of the one given as ``FORWARD``."""
    peaks = peaks or {}
    costs = {
        name: Cost(model, name, _title(name), batch, peak_megabytes=peaks.get(name)) for name in (FORWARD, *methods)
    }
    paths = {name: make_path(name, clients[_recipe(name)]) for name in costs}
    parts = [images[i : i + batch] for i in range(0, len(images) - batch + 1, batch)]
    slow = [name for name in methods if _is_slow(name)]
    for predict in paths.values():
        predict(parts[0])  # what is set up at the first call is no part of the cost
    for _ in range(repeats):
        # the quick ones among themselves: a training step in between would empty the processor's caches
        quick = {name: predict for name, predict in paths.items() if name not in slow}
        times = _take_turns(quick, parts)
        times |= _take_turns({name: paths[name] for name in slow}, parts[: max(1, len(parts) // SLOW_SHARE)])
        for name, cost in costs.items():
            cost.seconds_per_1000.append(1000 * times[name] / batch)
            cost.ratios.append(times[name] / times[FORWARD])
    return list(costs.values())


def _take_turns(paths: dict[str, Predict], parts: Sequence[Images]) -> dict[str, float]:
    """Return the median seconds of a call of each."""
    taken: dict[str, list[float]] = {name: [] for name in paths}
    gc.collect()
    gc.disable()  # otherwise one of them pays for the garbage of all
    try:
        for start in range(0, len(parts), BLOCK):
            # in another order every time, so that none always comes after the same one
            for name in generator(0, "turns", start).permutation(list(paths)).tolist():
                for part in parts[start : start + BLOCK]:
                    begun = time.perf_counter()
                    paths[name](part)
                    taken[name].append(time.perf_counter() - begun)
    finally:
        gc.enable()
    return {name: statistics.median(times) for name, times in taken.items()}


def peak_memory(name: str, client: DeployedClient) -> float | None:
    """Return the peak memory of a fresh process that runs this alone, in megabytes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run_alone, name, client).result()


def _run_alone(name: str, client: DeployedClient) -> float | None:
    torch.set_num_threads(1)
    predict = make_path(name, client)
    for image in synthetic_images(3, "memory"):
        predict(image[None])
    # not getrusage: on Linux a child begins with the peak of its parent there
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8")) if status.exists() else None
    return int(found[1]) / 1e3 if found else None


def _is_slow(name: str) -> bool:
    return name not in ONNX_PATHS and find_method(name).method.takes == "images"


def _recipe(name: str) -> str:
    return FORWARD if name == FORWARD or name in ONNX_PATHS else find_method(name).trained_with


def _title(name: str) -> str:
    if name == FORWARD:
        return "bare forward pass"
    return ONNX_PATHS[name] if name in ONNX_PATHS else find_method(name).title
