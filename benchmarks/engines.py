"""What an engine costs: one CIFAR-10 job by a bare torch loop, by our engines, on Flower and with pfl; as Markdown.

Run as ``python benchmarks/engines.py`` with CIFAR-10 in the cache (``btfl data get cifar10``). Flower and pfl can
seldom live in one environment; name the Python of another one that has btfl too::

    python benchmarks/engines.py --flower-python venv-flower/bin/python --pfl-python venv-pfl/bin/python

What cannot be imported is left out, and the output says so. Every contender is a process of its own that waits for its
turn; one round of each after the other, so that a busy machine slows all of them alike. All train the cnn with batch
32, SGD, learning rate 0.01 and weight decay 5e-4, one torch thread a process, on the same clients' images in the same
order with the same augmentation, all clients in every round; all use fused SGD and the channels-last layout.

It is FedAvg without what is personal (``personal_epochs = 0``), which neither the bare loop nor pfl would do; our
engines still carry each client's copy of the head from round to round, still check every upload, and still count the
loss and the accuracy. The bare loop does nothing but train and average. The final weights must agree with the bare
loop's to within ``TOLERANCE``; ours should be the same to the last bit, pfl adds up differences in float32.

Start-up is the first round, from the moment the data are loaded, less a median round: what it costs to start
processes or Ray, to load the data there, and what torch imports when it is first used. A round of no-ops is 100
clients who give back the weights they were sent.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: one thread a process, in every thread of it

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import nn

from btfl.core.client import Weights
from btfl.data.federated import ClientData, FederatedData
from btfl.engines import Event, LocalEngine, train_federation
from btfl.engines.base import Engine, Session
from btfl.engines.faults import FaultSettings
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.load import load_data
from btfl.models import load_arrays, to_arrays
from btfl.randomness import generator
from btfl.recipes.base import Recipe, Update
from btfl.recipes.batches import shuffled_batches
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.training import first_network

BATCH, RATE, DECAY, SEED = 32, 0.01, 5e-4, 0
TOLERANCE = 1e-3  # after a dozen rounds: differences in float32 grow
NOOP_CLIENTS, NOOP_IMAGES = 100, 20
TRAIN_SHARE = 0.6  # of a client's images; the rest is for validation and test
MARK = "@ "  # begins what a contender says to us; Ray and others print too


@dataclass(frozen=True)
class Job:
    """What every contender does."""

    clients: int
    images: int
    epochs: int
    rounds: int
    """Timed ones; one more comes before them."""
    noop: bool
    folder: str

    def experiment(self) -> Experiment:
        """Return the job as an experiment."""
        training = {
            "rounds": self.rounds + 1,
            "local_epochs": self.epochs,
            "personal_epochs": 0,
            "finetune_epochs": 0,
            "batch": BATCH,
            "learning_rate": RATE,
            "weight_decay": DECAY,
        }
        return make_experiment(
            {
                "dataset": "cifar10",
                "shift": "none",
                "samples": round(self.clients * self.images / TRAIN_SHARE),
                "clients": self.clients,
                "partition": "equal",
                "model": "cnn",
                "training": training,
                "seed": SEED,
            }
        )


class NoOp(FedAvg):
    """A recipe whose clients do nothing."""

    name: ClassVar[str] = "no-op"

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Return what was sent."""
        return Update(shared, len(data.train))


class Turns:
    """The contender's side of taking turns: wait for one, and say how long the round took."""

    def __init__(self, rounds: int) -> None:
        self.left, self.begun = rounds, 0.0

    def wait(self) -> None:
        """Wait for the turn, and start the clock."""
        if not sys.stdin.readline():
            sys.exit(0)
        self.begun = time.perf_counter()

    def done(self) -> None:
        """A round is done: say so, and wait for the next turn if there is one."""
        say("round", time.perf_counter() - self.begun)
        self.left -= 1
        if self.left:
            self.wait()


def say(*what: object) -> None:
    """Tell the parent."""
    print(MARK + json.dumps(what), flush=True)


Contender = Callable[[Job, Recipe, FederatedData, Turns], Weights | None]
"""Does all rounds, one a turn, and gives the final weights."""


def bare(job: Job, recipe: Recipe, data: FederatedData, turns: Turns) -> Weights:
    """Train in a loop of plain torch, and average in numpy."""
    parts = [data.of(client, 0).train for client in range(len(data))]
    network = first_network(recipe)
    shared: Weights = to_arrays(network)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
    turns.wait()
    for round_ in range(1, job.rounds + 2):
        sums: dict[str, NDArray[np.float64]] = {}
        for client, part in enumerate(parts):
            load_arrays(network, shared)
            if not job.noop:
                optimiser = torch.optim.SGD(network.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
                rng = generator(SEED, "local", round_, client)
                for _ in range(job.epochs):
                    for images, labels in shuffled_batches(part, BATCH, rng, augment=True):
                        optimiser.zero_grad(set_to_none=True)
                        nn.functional.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
                        optimiser.step()
            for name, array in to_arrays(network).items():
                term = array.astype(np.float64) * len(part)
                sums[name] = sums[name] + term if client else term
        total = sum(map(len, parts))
        shared = {name: (value / total).astype(np.float32) for name, value in sums.items()}
        turns.done()
    return shared


class Enough(Exception):  # noqa: N818 - not an error
    """Ends a federation after its last round, where its end is of no interest."""


def ours(
    make_engine: Callable[[Job], Engine],
    job: Job,
    recipe: Recipe,
    data: FederatedData,
    turns: Turns,
    save: bool = False,
) -> Weights | None:
    """Train through the library."""

    def report(event: Event) -> None:
        if event.stage == "train" and "seconds" in event.metrics:
            turns.done()
            if job.noop and not turns.left:
                raise Enough

    turns.wait()
    try:
        folder = Path(job.folder) / "run" if save else None
        return train_federation(recipe, data, make_engine(job), folder=folder, report=report).shared
    except Enough:
        return None


def local(workers: int) -> Callable[[Job], Engine]:
    """Return our engine for one machine."""
    return lambda job: LocalEngine(workers)


def flower(workers: int) -> Callable[[Job], Engine]:
    """Return our engine on Flower's simulation."""

    def engine(job: Job) -> Engine:
        from btfl.flower.simulation import FlowerSimulation

        folder = Path(job.folder)
        os.environ.setdefault("FLWR_HOME", str(folder / "flwr-home"))
        return noop_simulation(job, workers) if job.noop else FlowerSimulation(job.experiment(), folder, workers)

    return engine


def noop_simulation(job: Job, workers: int) -> Engine:
    """Return the same for a recipe that no registry knows: its class goes to the Ray actors with the task."""
    from btfl.flower.session import GridEngine
    from btfl.flower.simulation import _Simulation
    from btfl.flower.task import FlowerTask

    class NoOpTask(FlowerTask):
        def make(self, root: str | None = None) -> tuple[Recipe, FederatedData]:
            recipe, data = FlowerTask.make(self, root)
            return NoOp(recipe.settings, recipe.sample_shape, recipe.classes), data

    class NoOpSimulation:
        @contextmanager
        def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
            faults = FaultSettings()
            task = NoOpTask.of(job.experiment(), "fedavg", Path(job.folder) / "no-op", faults)
            simulation = _Simulation(task, len(data), workers)
            with simulation as grid, GridEngine(grid, faults, None, simulation.check).open(recipe, data) as session:
                yield session

    return NoOpSimulation()


@dataclass(frozen=True)
class PflUser:
    """A client's images as pfl wants a user's dataset: it may be asked for batches, epoch after epoch."""

    client: int
    data: ClientData
    rng: np.random.Generator
    noop: bool
    train_kwargs: Mapping[str, Any] = field(default_factory=dict)
    eval_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def user_id(self) -> str:
        return str(self.client)

    def __len__(self) -> int:
        return len(self.data.train)

    def iter(self, batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Go through the images once; pfl evaluates in its first round, with a batch of one, and gets just that."""
        if batch_size == 1:
            yield torch.zeros(1), torch.zeros(1)
        elif not self.noop:
            yield from shuffled_batches(self.data.train, batch_size, self.rng, augment=True)


class PflNetwork(nn.Module):
    """A network with the two methods pfl asks for."""

    def __init__(self, network: nn.Module, metric: Any) -> None:
        super().__init__()
        self.network, self.metric = network, metric

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.network(images), labels)

    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        return {"nothing": self.metric}


class PflTurns:
    """A callback of pfl that takes turns."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.round = turns, 1

    def on_train_begin(self, *, model: Any) -> Any:
        return importlib.import_module("pfl.metrics").Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        self.round = central_iteration + 2
        self.turns.done()
        return False, importlib.import_module("pfl.metrics").Metrics()

    def on_train_end(self, *, model: Any) -> None:
        return


def pfl(job: Job, recipe: Recipe, data: FederatedData, turns: Turns) -> Weights:
    """Train with pfl's own federated averaging, in its simulation in one process."""
    base = importlib.import_module("pfl.algorithm.base")
    hyperparam = importlib.import_module("pfl.hyperparam")
    federated = importlib.import_module("pfl.data.federated_dataset")
    one = importlib.import_module("pfl.metrics").Weighted(0.0, 1)
    network = first_network(recipe).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
    callback = PflTurns(turns)

    def user(client: int) -> PflUser:
        rng = generator(SEED, "local", callback.round, client)
        return PflUser(client, data.of(client, callback.round), rng, job.noop)

    turns.wait()
    module = PflNetwork(network, one)
    model = importlib.import_module("pfl.model.pytorch").PyTorchModel(
        module,
        local_optimizer_create=partial(torch.optim.SGD, weight_decay=DECAY, fused=True),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    sampler = importlib.import_module("pfl.data.sampling").get_user_sampler("minimize_reuse", list(range(len(data))))
    users = federated.FederatedDataset(user, sampler)
    weighting = importlib.import_module("pfl.aggregate.weighting").WeightByDatapoints()
    backend = importlib.import_module("pfl.aggregate.simulate").SimulatedBackend(users, users, [weighting])
    importlib.import_module("pfl.algorithm.federated_averaging").FederatedAveraging().run(
        base.NNAlgorithmParams(
            central_num_iterations=job.rounds + 1,
            evaluation_frequency=job.rounds + 2,
            train_cohort_size=len(data),
            val_cohort_size=None,
        ),
        backend,
        model,
        hyperparam.NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=job.epochs, local_learning_rate=RATE, local_max_grad_norm=None
        ),
        hyperparam.NNEvalHyperParams(local_batch_size=1),
        callbacks=[callback],
        send_metrics_to_platform=False,
    )
    return to_arrays(network)


@dataclass(frozen=True)
class Entry:
    """A contender as the table names it, and what it needs."""

    label: str
    run: Contender
    needs: str = "torch"


ENTRIES: Mapping[str, Entry] = {
    "bare": Entry("bare torch loop", bare),
    "local-1": Entry("`LocalEngine(1)`", partial(ours, local(1))),
    "saved": Entry("`LocalEngine(1)`, saving every round", partial(ours, local(1), save=True)),
    "local-2": Entry("`LocalEngine(2)`", partial(ours, local(2))),
    "flower-1": Entry("Flower simulation, 1 actor", partial(ours, flower(1)), "flwr"),
    "flower-2": Entry("Flower simulation, 2 actors", partial(ours, flower(2)), "flwr"),
    "pfl": Entry("pfl, 1 process", pfl, "pfl"),
}


def contend(name: str, job: Job) -> None:
    """Be a contender: what the child process does."""
    entry = ENTRIES[name]
    if importlib.util.find_spec(entry.needs) is None:
        say("missing", entry.needs)
        return
    torch.set_num_threads(1)
    experiment = job.experiment()
    data = load_data(experiment)
    cls = NoOp if job.noop else FedAvg
    recipe = cls(experiment.training_settings(), data.source.sample_shape, len(data.source.classes))
    steps = sum(-(-len(data.of(client, 0).train) // BATCH) for client in range(len(data))) * job.epochs
    version = importlib.import_module("importlib.metadata").version(entry.needs)
    say("ready", f"{entry.needs} {version}", steps)
    weights = entry.run(job, recipe, data, Turns(job.rounds + 1))
    if weights is not None:
        save_file(dict(weights), Path(job.folder) / "weights.safetensors")


class Child:
    """A contender as the parent sees it."""

    def __init__(self, name: str, python: str, job: Job) -> None:
        self.name, self.folder = name, Path(job.folder)
        self.folder.mkdir(parents=True)
        self.seconds: list[float] = []
        self.note, self.steps = "", 0
        with (self.folder / "errors.log").open("wb") as errors:
            self.process = subprocess.Popen(
                [python, __file__, "--contender", name, json.dumps(asdict(job))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def heard(self) -> list[Any]:
        """Return the next thing it says; nothing if it is gone."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                words: list[Any] = json.loads(line.removeprefix(MARK))
                return words
        return []

    def ready(self) -> bool:
        """Wait until it has its data; say whether it takes part."""
        match self.heard():
            case ["ready", str(note), int(steps)]:
                self.note, self.steps = note, steps
                return True
            case ["missing", str(what)]:
                self.note = f"left out: {what} cannot be imported"
            case _:
                self.note = f"left out: it failed. {self.last_words()}"
        return False

    def turn(self) -> None:
        """Let it do a round."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        match self.heard():
            case ["round", float(seconds)]:
                self.seconds.append(seconds)
            case _:
                sys.exit(f"{self.name} has stopped: {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of what it wrote about its failure."""
        self.process.wait()
        return (self.folder / "errors.log").read_text()[-1500:]

    def finish(self) -> dict[str, NDArray[np.float32]]:
        """Wait for its end and give its final weights."""
        if self.process.wait():
            sys.exit(f"{self.name} has failed: {self.last_words()}")
        path = self.folder / "weights.safetensors"
        return load_file(path) if path.exists() else {}


def compete(names: Sequence[str], pythons: Mapping[str, str], job: Job, place: Path) -> tuple[list[Child], list[Child]]:
    """Let the contenders take turns; give those who took part, and those who could not."""
    children: list[Child] = []
    absent: list[Child] = []
    for name in names:  # one after another: their start is not to be slowed by the others'
        python = pythons.get(name.split("-")[0], sys.executable)
        child = Child(name, python, Job(**{**asdict(job), "folder": str(place / name)}))
        (children if child.ready() else absent).append(child)
    for _ in range(job.rounds + 1):
        for child in children:
            child.turn()
    return children, absent


def main() -> None:
    """Let them compete at the job and at doing nothing; print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=512, help="a client trains on")
    parser.add_argument("--epochs", type=int, default=2, help="local epochs")
    parser.add_argument("--rounds", type=int, default=8, help="timed rounds")
    parser.add_argument("--noop-rounds", type=int, default=20, help="timed rounds of no-ops")
    parser.add_argument("--only", nargs="+", choices=list(ENTRIES), default=list(ENTRIES), help="besides the bare loop")
    parser.add_argument("--flower-python", default=sys.executable, help="a Python that has btfl and flwr")
    parser.add_argument("--pfl-python", default=sys.executable, help="a Python that has btfl and pfl")
    parser.add_argument("--contender", nargs=2, metavar=("NAME", "JOB"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        contend(arguments.contender[0], Job(**json.loads(arguments.contender[1])))
        return

    pythons = {"flower": arguments.flower_python, "pfl": arguments.pfl_python}
    names = [name for name in ENTRIES if name == "bare" or name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="btfl-engines-") as folder:
        job = Job(arguments.clients, arguments.images, arguments.epochs, arguments.rounds, False, "")
        children, absent = compete(names, pythons, job, Path(folder) / "job")
        weights = {child.name: child.finish() for child in children}
        noop = Job(NOOP_CLIENTS, NOOP_IMAGES, 1, arguments.noop_rounds, True, "")
        idle, _ = compete([child.name for child in children], pythons, noop, Path(folder) / "no-op")
        for child in idle:
            child.finish()
    well = report(children, absent, weights, {child.name: child for child in idle}, job)
    sys.exit(0 if well else 1)


def report(
    children: Sequence[Child],
    absent: Sequence[Child],
    weights: Mapping[str, Mapping[str, NDArray[np.float32]]],
    idle: Mapping[str, Child],
    job: Job,
) -> bool:
    """Print the table; say whether the weights agree."""
    yardstick, well = np.array(children[0].seconds[1:]), True
    print(
        f"{job.clients} clients, {children[0].steps} steps of batch {BATCH} a round, {job.rounds} timed rounds "
        f"after one that is not; Python {sys.version.split()[0]}, torch {torch.__version__}\n"
    )
    print(
        "| contender | s a round, median | least | times the bare loop | start-up, s | ms a round of "
        f"{NOOP_CLIENTS} no-ops | worst difference of a weight |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for child in children:
        seconds, first = np.array(child.seconds[1:]), child.seconds[0]
        found, expected = weights[child.name], weights["bare"]
        worst = max(float(np.abs(found[name] - expected[name]).max()) for name in expected)
        well &= worst <= TOLERANCE and found.keys() == expected.keys()
        difference = "none, to the last bit" if worst == 0 else f"{worst:.1e}"
        nothing = 1000 * float(np.median(idle[child.name].seconds[1:]))
        start = first - np.median(seconds)
        print(
            f"| {ENTRIES[child.name].label} ({child.note}) | {np.median(seconds):.3f} | {seconds.min():.3f} "
            f"| {np.median(seconds / yardstick):.2f} | {start:.2f} | {nothing:.1f} | {difference} |"
        )
    for child in absent:
        print(f"\n{ENTRIES[child.name].label}: {child.note}")
    print(f"\nweights agree within {TOLERANCE:g}: {'yes' if well else 'NO'}")
    return well


if __name__ == "__main__":
    main()
