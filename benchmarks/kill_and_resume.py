"""Kill a run at random moments, start it again until it is done, and compare its digest with an undisturbed run's.

Run as ``python benchmarks/kill_and_resume.py --kills 20 --seed 0``. First the whole process tree is killed with
SIGKILL. Of every four kills, two come at a moment drawn from two rounds' work, one while the run is getting started,
and one while a round is being saved, which a draw would seldom hit. If a run ends before the kills are used up, it is
compared and the next one begins in a fresh folder. Then single worker processes are killed while the run goes on: it
has to end without being started again. Prints a table of where each kill landed, as Markdown; the exit status is 1 if
anything differs from the undisturbed run. Linux only: the workers are found in /proc.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.engines import Event, LocalEngine, train_federation
from btfl.randomness import generator
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.runs.layout import CHECKPOINT, TrainingFiles

CLIENTS = 10
AIMS = ("work", "work", "start", "save")  # of the first, second, third and fourth kill, and so on
SAVING = 0.03  # seconds: an aimed kill comes up to so long after a round's last client
ANSWERS = ("train", "describe", "conclude")
GLANCE = 0.001  # seconds between two looks at a run


def train(folder: Path, log: Path, rounds: int, epochs: int, workers: int) -> None:
    """Train in this process, writing each event and, at the end, the digest into a log."""
    source = load_source("digits", shift="none")
    partition = make_partition(source, PartitionSettings(CLIENTS, alpha=0.5), seed=0)
    settings = TrainingSettings.for_model("mlp", rounds=rounds, local_epochs=epochs)
    recipe = make_recipe("fedavg", settings, source.sample_shape, len(source.classes))
    with log.open("a", buffering=1) as file:

        def report(event: Event) -> None:
            if event.metrics:
                file.write(f"saving {event.round} 0 {event.metrics['seconds']:.3f}\n")
            else:
                file.write(f"{event.stage} {event.round} {event.clients_done} 0\n")

        file.write("begun 0 0 0\n")
        federation = train_federation(
            recipe, FederatedData(source, partition), LocalEngine(workers), folder=folder, report=report
        )
        file.write(f"digest {federation.digest()}\n")


@dataclass
class Run:
    """A run in a process group of its own, watched through its log."""

    folder: Path
    options: list[str]
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start it, or start it again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        command = [sys.executable, __file__, "--train", str(self.folder / "run"), str(self.log), *self.options]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, start_new_session=True, stderr=errors)

    @property
    def log(self) -> Path:
        return self.folder / "events.log"

    @property
    def errors(self) -> Path:
        return self.folder / "errors.log"

    def lines(self) -> list[list[str]]:
        """Return what the run has said since it was last started."""
        return [line.split() for line in self.log.read_text().splitlines() if line]

    def running(self) -> bool:
        return self.process.poll() is None

    def workers(self) -> list[int]:
        """Return the ids of its worker processes."""
        found: list[int] = []
        with suppress(OSError):  # it may just have ended
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        return sorted(found)

    def saved(self) -> int:
        """Return the last round that is on disk."""
        files = TrainingFiles(self.folder / "run")
        done = (round_ for round_ in files.rounds() if (files.checkpoint(round_) / f"{CHECKPOINT}.json").exists())
        return max(done, default=0)

    def kill(self) -> None:
        """Kill the process and its workers, all at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def digest(self) -> str:
        """Wait for the end and give the digest, or stop with what went wrong."""
        if self.process.wait() != 0:
            sys.exit(f"the run has failed, with status {self.process.returncode}:\n{self.errors.read_text()[-2000:]}")
        return self.lines()[-1][1]

    def wait_for(self, *stages: str) -> bool:
        """Wait for the next event of such a stage; say whether it came before the end."""
        seen = len(self.lines())
        while self.running():
            if any(line[0] in stages for line in self.lines()[seen:]):
                return True
            time.sleep(GLANCE)
        return False

    def sleep(self, seconds: float) -> bool:
        """Let it work for so long; say whether it is still running."""
        end = time.monotonic() + seconds
        while self.running() and time.monotonic() < end:
            time.sleep(GLANCE)
        return self.running()


def landed(run: Run, seconds: float) -> str:
    """Say what a run had last told when a kill came."""
    stage, *numbers = (run.lines() or [["begun"]])[-1]
    round_, clients = numbers[:2] if len(numbers) > 1 else ("0", "0")
    where = {
        "begun": "before the first answer",
        "saving": f"round {round_}, all clients through",
        "train": f"round {round_}, {clients} of {CLIENTS} clients through",
        "describe": f"the end: {clients} of {CLIENTS} clients have described",
        "conclude": f"the end: {clients} of {CLIENTS} clients have concluded",
        "digest": "all done, about to leave",
    }[stage]
    return f"{seconds:.2f} | {where} | {run.saved()} |"


def kill_everything(
    place: Path, options: list[str], kills: int, start: float, pause: float, rng: np.random.Generator, expected: str
) -> Iterator[tuple[str, bool]]:
    """Kill whole runs, as often as asked; give a row for each kill and each end, and whether all is well."""
    number, done = 1, 0
    run = Run(place / f"killed-{number}", options)
    while True:
        run.start()
        alive = run.wait_for("begun")
        begun = time.monotonic()
        if alive and done < kills:
            aim = AIMS[done % len(AIMS)]
            if aim == "start":
                alive = run.sleep(rng.uniform(0.0, start))
            elif aim == "save":
                alive = run.wait_for("saving") and run.sleep(rng.uniform(0.0, SAVING))
            else:
                alive = run.wait_for(*ANSWERS) and run.sleep(rng.uniform(0.0, 2.0 * pause))
            if alive:
                seconds = time.monotonic() - begun
                run.kill()
                done += 1
                yield f"| {number} | {done} | {aim} | {landed(run, seconds)}", True
                continue
        same = run.digest() == expected
        yield f"| {number} | – | – | – | ended, digest {'the same' if same else 'DIFFERS'} | – |", same
        if done == kills:
            return
        number += 1
        run = Run(place / f"killed-{number}", options)


def kill_workers(
    place: Path, options: list[str], kills: int, start: float, pause: float, rng: np.random.Generator, expected: str
) -> Iterator[tuple[str, bool]]:
    """Kill one worker at a time while a run goes on; give a row for each kill and each end, and whether all is well."""
    number, done = 1, 0
    while True:
        run = Run(place / f"worker-{number}", options)
        run.start()
        run.wait_for("train")
        begun = time.monotonic()
        while done < kills and run.sleep(rng.uniform(0.0, 2.0 * pause)):
            workers = run.workers()
            if not workers:  # between two pools
                continue
            victim = int(rng.choice(workers))
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                done += 1
                yield f"| {number} | {done} | one worker | {landed(run, time.monotonic() - begun)}", True
            if not run.wait_for(*ANSWERS):  # a result first, or workers "keep dying"
                break
        same = run.digest() == expected
        yield f"| {number} | – | – | – | ended by itself, digest {'the same' if same else 'DIFFERS'} | – |", same
        if done >= kills:
            return
        number += 1


def main() -> None:
    """Train undisturbed, kill, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="kills of the whole process tree")
    parser.add_argument("--worker-kills", type=int, default=6, help="kills of a single worker")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=60, help="local epochs: how long a round takes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--train", type=Path, nargs=2, metavar=("FOLDER", "LOG"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        folder, log = arguments.train
        train(folder, log, arguments.rounds, arguments.epochs, arguments.workers)
        return

    options = [f"--{name}={getattr(arguments, name)}" for name in ("rounds", "epochs", "workers")]
    with tempfile.TemporaryDirectory(prefix="btfl-kill-") as folder:
        place = Path(folder)
        calm = Run(place / "undisturbed", options)
        calm.start()
        calm.wait_for("begun")
        begun = time.monotonic()
        calm.wait_for(*ANSWERS)
        start = time.monotonic() - begun
        expected = calm.digest()
        pause = float(np.median([float(line[3]) for line in calm.lines() if line[0] == "saving"]))
        print(
            f"undisturbed: {arguments.rounds} rounds of {pause:.2f} s, {arguments.workers} workers, digest {expected}\n"
        )
        print("| run | kill | aimed | seconds of work | landed in | last round on disk |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        well = True
        for kill, kills in ((kill_everything, arguments.kills), (kill_workers, arguments.worker_kills)):
            rng = generator(arguments.seed, "kills", kill.__name__)
            for row, good in kill(place, options, kills, start, pause, rng, expected):
                print(row, flush=True)
                well &= good
    print(f"\n{'every run ended with the same digest' if well else 'NOT every run ended with the same digest'}")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
