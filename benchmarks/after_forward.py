"""What the decision costs right after a forward pass in torch, and what it costs alone; as a Markdown table.

Run as ``python benchmarks/after_forward.py`` on a quiet machine. One image after another goes through the cnn's
extractor and then through BTFL's decision, and each step is timed apart; then the decision is called once more right
away, and by itself over and over. The difference is what the processor's caches have lost in between.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from numpy.typing import NDArray

from btfl.methods.registry import find_method
from btfl.models.inputs import to_tensor
from btfl.models.threads import one_thread
from btfl.studies.speed.clients import synthetic_clients, synthetic_images

SAMPLES = 320


def timed(work: Callable[[], Any], times: list[float]) -> Any:
    begun = perf_counter()
    result = work()
    times.append(1e6 * (perf_counter() - begun))
    return result


def main() -> None:
    client = synthetic_clients("cnn", ["fedavg"])["fedavg"]
    network, decide = client.extractor(), find_method("btfl").build(client).predict
    images = synthetic_images(SAMPLES, "stream")
    rows: dict[str, list[float]] = {}

    def forward(tensor: torch.Tensor) -> NDArray[Any]:
        return network(tensor).numpy()  # type: ignore[no-any-return]

    def row(name: str) -> list[float]:
        return rows.setdefault(name, [])

    with one_thread(), torch.inference_mode():
        for i in range(SAMPLES):
            tensor = to_tensor(images[i : i + 1])
            features = timed(partial(network.features, tensor), row("torch's extractor"))
            array = timed(features.numpy, row("features to numpy"))
            timed(partial(decide, array), row("the decision, right after it"))
            timed(partial(decide, array), row("the decision once more, right away"))
        for _ in range(SAMPLES):
            timed(partial(decide, array), row("the decision, called over and over"))
        for i in range(SAMPLES):
            tensor = to_tensor(images[i : i + 1])
            timed(partial(forward, tensor), row("the bare forward pass, by itself"))
    print("| step | microseconds, median |\n| --- | --- |")
    for name, times in rows.items():
        print(f"| {name} | {statistics.median(times):.0f} |")


if __name__ == "__main__":
    main()
