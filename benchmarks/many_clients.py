"""Memory with ten thousand clients: does it stay flat from round to round? Prints first and last, and draws all of it.

Run as ``python benchmarks/many_clients.py``; it writes docs/images/many-clients.png. 10,000 simulated clients with five
made-up images each (random bytes: what is learnt does not matter here), of whom 1 % train in each of 50 rounds, in a
run folder. After every round the resident memory of this process and of its workers is taken. Memory that is shared,
such as the images after a fork, counts in each of them; what each has alone is given too.

Then comes the end, in which all 10,000 describe their data and get their bundles, which go to disk one by one: memory
is taken at every hundredth of each stage, and drawn beside the rounds. ``--no-end`` leaves it out; ``--end-minutes``
stops it after so many minutes, and what is printed says how far it came. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.source import Samples, Source
from btfl.engines import Event, LocalEngine, train_federation
from btfl.randomness import generator
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.report.style import EXD_COLOUR, IND_COLOUR, INK, RC

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "many-clients.png"
IMAGES_EACH, CLASSES = 5, 10  # five are the fewest that can be split into train, validation and test
SHAPES = {"mlp": (8, 8, 1), "cnn": (32, 32, 3), "resnet20": (32, 32, 3), "cct4": (32, 32, 3)}


@dataclass(frozen=True)
class Memory:
    """Memory of this process and its workers, in MB."""

    own: float
    workers: float
    """Resident, of all workers together."""
    alone: float
    """What this process and the workers share with nobody."""

    def __str__(self) -> str:
        return f"server {self.own:.0f} MB, workers {self.workers:.0f} MB, unshared {self.alone:.0f} MB"


def memory() -> Memory:
    """Look at this process and its children."""
    children = [
        int(child) for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
    ]
    own, alone = _read(os.getpid())
    others = [_read(child) for child in children]
    return Memory(own, sum(rss for rss, _ in others), alone + sum(unshared for _, unshared in others))


def _read(process: int) -> tuple[float, float]:
    sizes: dict[str, float] = {}
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, size, _ = line.split()
        sizes[name.removesuffix(":")] = int(size) / 1024
    return sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"]


class Enough(Exception):  # noqa: N818 - not an error
    """Ends the run after its last round."""


@dataclass
class Watch:
    """Takes the memory after each round, and the time of each stage."""

    end: bool
    minutes: float
    """After so many of the end, it is stopped."""
    rows: list[Memory] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    at_end: list[tuple[str, int, Memory]] = field(default_factory=list)
    """Stage, clients that are through, and the memory then."""
    stages: dict[str, float] = field(default_factory=dict)
    """Stage -> when its last client was through."""
    through: dict[str, int] = field(default_factory=dict)
    """Stage of the end -> how many clients are through."""
    processor: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Stage of the end -> this process's processor time when its first and its last client were through."""

    def report(self, event: Event) -> None:
        self.stages[event.stage] = time.monotonic()
        if event.stage != "train":
            if not self.end or self.stages[event.stage] - self.stages["train"] > 60 * self.minutes:
                raise Enough
            self.through[event.stage] = event.clients_done
            now = time.process_time()
            self.processor[event.stage] = self.processor.get(event.stage, (now, now))[0], now
            if event.clients_done % max(event.clients // 100, 1) == 0:
                self.at_end.append((event.stage, event.clients_done, memory()))
            if event.clients_done % max(event.clients // 10, 1) == 0:
                print(f"{event.stage}: {event.clients_done:,} of {event.clients:,}, {memory()}", flush=True)
        elif "seconds" in event.metrics:
            self.rows.append(memory())
            self.seconds.append(event.metrics["seconds"])
            if event.round == 1 or event.round % 10 == 0:
                print(f"round {event.round}: {event.metrics['seconds']:.2f} s, {self.rows[-1]}", flush=True)


def made_up(clients: int, model: str) -> FederatedData:
    """Deal random images to the clients."""
    rng = generator(0, "many clients")
    images = rng.integers(0, 256, (clients * IMAGES_EACH, *SHAPES[model]), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, len(images))
    source = Source("random images", tuple(map(str, range(CLASSES))), Samples(images, labels))
    return FederatedData(source, make_partition(source, PartitionSettings(clients, "equal"), seed=0))


def draw(
    rows: Sequence[Memory], at_end: Sequence[tuple[str, int, Memory]], clients: int, workers: int, path: Path
) -> None:
    """Draw memory by round, and beside it by client in the stages of the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rounds = np.arange(1, len(rows) + 1)
    with pyplot.rc_context(dict(RC)):
        figure, (axes, end) = pyplot.subplots(1, 2, figsize=(9.6, 3.4), sharey=True)
        places = np.arange(len(at_end)) / max(len(at_end) // max(len({stage for stage, _, _ in at_end}), 1), 1)
        for values, colour, line in (
            ([row.own for _, _, row in at_end], EXD_COLOUR, "-"),
            ([row.workers for _, _, row in at_end] if workers > 1 else [], IND_COLOUR, "--"),
            ([row.alone for _, _, row in at_end], INK, ":"),
        ):
            end.plot(places[: len(values)], values, color=colour, linestyle=line)
        stages = list(dict.fromkeys(stage for stage, _, _ in at_end))
        whole = any(stage == "conclude" and count == clients for stage, count, _ in at_end)
        last = f"{at_end[-1][0]}, {at_end[-1][1]:,} of {clients:,} clients" if at_end else "left out"
        title = f"all {clients:,} clients get their bundles" if whole else f"stopped at: {last}"
        end.set(xlabel="the end, stage by stage", title=title)
        end.set_xticks(np.arange(len(stages)) + 0.5, stages)
        axes.plot(rounds, [row.own for row in rows], color=EXD_COLOUR, label="server, resident")
        if workers > 1:
            label = f"{workers} workers together, resident"
            axes.plot(rounds, [row.workers for row in rows], color=IND_COLOUR, linestyle="--", label=label)
        axes.plot(rounds, [row.alone for row in rows], color=INK, linestyle=":", label="all of them, unshared")
        axes.set(xlabel="round", ylabel="MB", title=f"{clients:,} clients, random images", ylim=(0, None))
        figure.legend(loc="outside lower center", ncols=3)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        pyplot.close(figure)


def main() -> None:
    """Train, watch, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.01, help="of the clients that train in a round")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", choices=list(SHAPES), default="cnn", help="mlp gets images of 8x8, the others 32x32")
    parser.add_argument("--no-end", action="store_true", help="stop after the last round")
    parser.add_argument("--end-minutes", type=float, default=float("inf"), help="stop the end after so many")
    parser.add_argument("--folder", type=Path, help="of the run; a temporary one if not given. It must be new")
    parser.add_argument("--out", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    begun = time.monotonic()
    data = made_up(arguments.clients, arguments.model)
    settings = TrainingSettings.for_model(
        arguments.model, rounds=arguments.rounds, local_epochs=1, participation=arguments.share
    )
    recipe = make_recipe("fedavg", settings, data.source.sample_shape, CLASSES)
    print(f"{arguments.clients:,} clients made in {time.monotonic() - begun:.1f} s: {memory()}", flush=True)
    watch = Watch(not arguments.no_end, arguments.end_minutes)
    with tempfile.TemporaryDirectory(prefix="btfl-many-") as temporary:
        folder = arguments.folder or Path(temporary) / "run"
        with suppress(Enough):
            train_federation(recipe, data, LocalEngine(arguments.workers), folder=folder, report=watch.report)
        ended = time.monotonic()
        private = sum(1 for _ in (folder / "private").glob("client-*"))
    if not watch.rows:
        raise SystemExit(f"{folder} holds a run that had no round left to do")

    print("\n| after round | server, MB | workers, MB | unshared, all together, MB | s |")
    print("| --- | --- | --- | --- | --- |")
    count = len(watch.rows)
    for number in sorted({0, min(9, count - 1), count // 2, count - 1}):
        row = watch.rows[number]
        seconds = watch.seconds[number]
        print(f"| {number + 1} | {row.own:.0f} | {row.workers:.0f} | {row.alone:.0f} | {seconds:.2f} |")
    print(
        f"\nprivate states on disk after the last round: {private:,}; s a round, median: {np.median(watch.seconds):.2f}"
    )
    if watch.end and watch.through.get("conclude", 0) < arguments.clients:
        told = ", ".join(f"{stage} {count:,}" for stage, count in watch.through.items())
        print(f"the end was stopped after {(ended - watch.stages['train']) / 60:.1f} minutes; clients through: {told}")
    elif watch.end:
        trained, described, concluded = (watch.stages[stage] for stage in ("train", "describe", "conclude"))
        print(
            f"the end: describe {described - trained:.1f} s, conclude {concluded - described:.1f} s, "
            f"save {ended - concluded:.1f} s; memory then: {memory()}"
        )
    if arguments.workers == 1:
        each = [f"{stage} {1e3 * (b - a) / arguments.clients:.1f}" for stage, (a, b) in watch.processor.items()]
        print(f"processor time of the end, ms a client: {', '.join(each)}")
    for stage in dict.fromkeys(stage for stage, _, _ in watch.at_end):
        alone = [row.alone for name, _, row in watch.at_end if name == stage]
        print(f"{stage}: unshared memory {alone[0]:.0f} MB at its first hundredth, {alone[-1]:.0f} at its last")
    draw(watch.rows, watch.at_end, arguments.clients, arguments.workers, arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
