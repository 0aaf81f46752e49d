"""A million rows of vectors with a thousand natural clients: load, train heads and evaluate; time and memory of each.

Run as ``python benchmarks/million_rows.py``. It writes a Parquet file of synthetic rows (Gaussian classes, moved a
little for each client, with a label mix of its own), and then does what ``btfl bench --dataset table --partition
natural --model linear`` does. Memory is the proportional set size of this process and its workers together, taken five
times a second: shared pages count once. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from btfl.benchmark.run import run_bench
from btfl.data.catalogue import load_source
from btfl.data.partition import make_partition
from btfl.data.scaling import standardised
from btfl.data.streams import make_manifest
from btfl.engines import Event
from btfl.experiments.experiment import make_experiment
from btfl.randomness import generator

CLASSES, ALPHA = 10, 0.5
METHODS = ("fedavg", "personal", "btfl", "coherent", "oracle")
EVERY = 0.2  # seconds between two looks at the memory


def memory() -> float:
    """Return the proportional set size of this process and its children, in MB."""
    children = [
        child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
    ]
    total = 0.0
    for process in ("self", *children):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # a worker that has just ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


@dataclass
class Stages:
    """What each stage took: seconds, and the memory before it, at most, and after it."""

    now: str = ""
    rows: dict[str, list[float]] = field(default_factory=dict)
    """Stage -> begun, last seen, memory before, at most, after."""

    def enter(self, stage: str) -> None:
        self.look()  # the last of the stage before
        here = memory()
        self.rows.setdefault(stage, [time.monotonic(), time.monotonic(), here, here, here])
        self.now = stage

    def look(self) -> None:
        if self.now:
            row, here = self.rows[self.now], memory()
            row[1], row[3], row[4] = time.monotonic(), max(row[3], here), here

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the memory all the time."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(EVERY):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.look()

    def show(self) -> None:
        print("\n| stage | s | MB before | MB at most | MB after |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for stage, (begun, ended, before, most, after) in self.rows.items():
            print(f"| {stage} | {ended - begun:.1f} | {before:.0f} | {most:.0f} | {after:.0f} |")


def write_rows(path: Path, rows: int, clients: int, dimensions: int) -> None:
    """Write the table, some clients at a time."""
    rng = generator(0, "million rows")
    means = rng.normal(size=(CLASSES, dimensions)).astype(np.float32)
    names = [f"x{number}" for number in range(dimensions)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.string()), ("client", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for client in range(clients):
            count = rows // clients
            labels = rng.choice(CLASSES, size=count, p=rng.dirichlet(np.full(CLASSES, ALPHA)))
            moved = means + 0.5 * rng.normal(size=dimensions).astype(np.float32)
            values = moved[labels] + 2.0 * rng.standard_normal((count, dimensions), dtype=np.float32)
            columns = [*(pa.array(column) for column in values.T), pa.array([f"class {label}" for label in labels])]
            writer.write_table(pa.table([*columns, pa.array(np.full(count, client))], schema=schema))


def main() -> None:
    """Make the rows, do everything with them, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stages = Stages()
    with tempfile.TemporaryDirectory(prefix="btfl-million-") as temporary, stages.watched():
        path = Path(temporary) / "rows.parquet"
        stages.enter("write the file")
        write_rows(path, arguments.rows, arguments.clients, arguments.dimensions)
        disk, plain = path.stat().st_size / 2**20, arguments.rows * arguments.dimensions * 4 / 2**20
        size = f"{disk:.0f} MB on disk, {plain:.0f} MB as float32"
        print(f"{arguments.rows:,} rows of {arguments.dimensions} columns: {size}", flush=True)
        experiment = make_experiment(
            {
                "name": "million", "dataset": "table", "root": str(path), "partition": "natural", "model": "linear",
                "methods": METHODS, "training": {"rounds": arguments.rounds}, "switching": False,
            }
        )  # fmt: skip
        stages.enter("load")
        source = load_source("table", root=path)
        stages.enter("find copies, split")
        partition = make_partition(source, experiment.partition_settings(), 0)
        stages.enter("means and deviations")
        source = standardised(source, partition)
        stages.enter("draw streams")
        make_manifest(source, partition, experiment.stream_settings(), 0)
        del source, partition

        def watch(recipe: str, event: Event) -> None:
            if stages.now != event.stage:
                stages.enter(event.stage)
            if "seconds" in event.metrics:
                print(f"round {event.round}: {event.metrics['seconds']:.1f} s, {memory():.0f} MB", flush=True)

        stages.enter("all of that again")
        run = run_bench(experiment, Path(temporary) / "run", workers=arguments.workers, watch=watch)
    stages.show()
    print(f"\n{run.source!r}, {arguments.workers} workers\n")
    means = run.rows.groupby(["method", "stream"])["accuracy"].mean().unstack() * 100
    print(means.round(2).to_string())


if __name__ == "__main__":
    main()
