"""Seconds for 1,000 samples at batch 1: each method on the same images of one client, one by one.

Timings are no function of the settings, so they stay out of the results and have a file of their own.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.adapters.heads import Oracle
from btfl.adapters.registry import Method
from btfl.bench.evaluate import Evaluation
from btfl.client import DeployedClient
from btfl.data.streams import Stream, render
from btfl.engines.pool import one_thread
from btfl.recipes.images import extract
from btfl.storage import read_json, write_json

FILE = "speed.json"
WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """How long a method took."""

    method: str
    seconds_per_1000: float
    samples: int
    repeats: int


def measure_speed(evaluation: Evaluation, folder: Path, samples: int = 50, repeats: int = 3) -> list[Timing]:
    """Time every method on the first samples of client 0's own stream, and write the timings down."""
    stream = render(evaluation.source, evaluation.manifest, 0)["original_ind"]
    count = min(samples, len(stream))
    timings = []
    with one_thread():
        for method in evaluation.methods:
            client = evaluation.federations[method.trained_with].client(0)
            for _ in range(repeats):
                seconds = _time(method, client, stream, count)
                timings.append(Timing(method.name, seconds / count * 1000, count, repeats))
    write_json(folder / FILE, [asdict(timing) for timing in timings])
    return timings


def read_speed(folder: Path) -> list[Timing]:
    """Read the timings of a run; empty if it took none."""
    path = folder / FILE
    return [Timing(**entry) for entry in read_json(path)] if path.exists() else []


def _time(method: Method, client: DeployedClient, stream: Stream, count: int) -> float:
    adapter, network = method.build(client), client.extractor()
    takes_features = method.adapter_class().takes == "features"

    def see(rows: slice) -> NDArray[np.float64]:
        if isinstance(adapter, Oracle):
            adapter.tell(stream.labels[rows])
        images = stream.images[rows]
        return adapter.predict(extract(network, images).astype(np.float64) if takes_features else images)

    for i in range(WARM_UP):  # what is set up at the first calls is not the method's cost
        see(slice(i, i + 1))
    adapter.reset()
    start = time.perf_counter()
    for i in range(count):
        see(slice(i, i + 1))
    return time.perf_counter() - start
