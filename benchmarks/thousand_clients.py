"""A round of a thousand clients on each engine: seconds and bytes, as a Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/thousand_clients.py [--share 0.1]

1,000 clients with five made-up images of 32x32x3 each, the cnn, one local epoch; a share of them trains in each round.
The same experiment on our engine with one and two processes and in Flower's simulation with two actors (if flwr is
installed), one after another; all end with the same weights to the last bit, or this says so and fails. The first
round, in which processes start, is given apart. Bytes are those of arrays, all clients of a round together. The end is
left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # its actors are to run as our processes do

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from btfl.core.provenance import sha256_of
from btfl.engines import Event, LocalEngine, train_federation
from btfl.engines.base import Engine
from btfl.engines.faults import FaultSettings
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.flower.task import FlowerTask
from btfl.randomness import generator
from btfl.runs.start import last_state

CLIENTS, EACH, CLASSES = 1_000, 5, 10


class Enough(Exception):  # noqa: N818 - not an error
    """Ends a federation after its last round."""


def made_up(path: Path) -> Path:
    """Write random images, which is all that a measurement of engines needs."""
    rng = generator(0, "many clients")
    images = rng.integers(0, 256, (CLIENTS * EACH, 32, 32, 3), dtype=np.uint8)
    np.savez(path, x=images, y=rng.integers(0, CLASSES, len(images)))
    return path


def on_flower(experiment: Experiment, folder: Path) -> Engine:
    """Return Flower's simulation."""
    from btfl.flower.simulation import FlowerSimulation

    os.environ.setdefault("FLWR_HOME", str(folder / "flwr-home"))
    return FlowerSimulation(experiment, folder / "clients", 2)


ENGINES: dict[str, Callable[[Experiment, Path], Engine]] = {
    "`LocalEngine(1)`": lambda experiment, folder: LocalEngine(1),
    "`LocalEngine(2)`": lambda experiment, folder: LocalEngine(2),
    "Flower simulation, 2 actors": on_flower,
}


def measure(name: str, experiment: Experiment, folder: Path) -> tuple[list[dict[str, float]], str]:
    """Return seconds and bytes of each round, and the sha256 of the weights after the last."""
    recipe, data = FlowerTask.of(experiment, "fedavg", "run", FaultSettings()).make()
    rows: list[dict[str, float]] = []
    before = time.perf_counter()

    def report(event: Event) -> None:
        nonlocal before
        if event.stage != "train":
            raise Enough
        if "seconds" in event.metrics:
            now = time.perf_counter()
            rows.append({**event.metrics, "seconds": now - before})
            before = now

    with suppress(Enough):
        train_federation(recipe, data, ENGINES[name](experiment, folder), folder=folder / "run", report=report)
    return rows, sha256_of(last_state(folder / "run").shared)


def main() -> None:
    """Measure each engine; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.1, help="of the clients that train in a round")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digests = set()
    print("| engine | clients asked | s, first round | s a round, median (least) | MB down | MB up |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in ENGINES:
        if "Flower" in name and importlib.util.find_spec("flwr") is None:
            print(f"\n{name}: left out, flwr is not installed")
            continue
        with tempfile.TemporaryDirectory(prefix="btfl-thousand-") as place:
            folder = Path(place)
            experiment = make_experiment(
                {
                    "dataset": "arrays", "root": str(made_up(folder / "images.npz")), "clients": CLIENTS,
                    "partition": "equal", "model": "cnn",
                    "training": {
                        "rounds": arguments.rounds, "local_epochs": 1, "participation": arguments.share,
                        "learning_rate": 0.01,
                    },
                }
            )  # fmt: skip
            rows, digest = measure(name, experiment, folder)
        digests.add(digest)
        seconds = [row["seconds"] for row in rows]
        down, up = (rows[-1][key] / 1e6 for key in ("bytes_down", "bytes_up"))
        print(
            f"| {name} | {round(arguments.share * CLIENTS):,} | {seconds[0]:.1f} | {np.median(seconds[1:]):.2f} "
            f"({min(seconds[1:]):.2f}) | {down:.1f} | {up:.1f} |",
            flush=True,
        )
    print(f"\nweights after the last round: {'the same to the last bit' if len(digests) == 1 else 'DIFFERENT'}")
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
