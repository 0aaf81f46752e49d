"""Streams of our own, to test the memory of the stream: they switch, drift, burst, mix, or come class by class.

A scenario is an order of picks from a client's base streams: internal samples from A (with B, if asked), external ones
from C (with D). It is written down as indices, so features are computed once and serve every scenario. A pool shorter
than the stream is gone through again, each time in a new order: a sample may then occur several times, but never a
second time before all others of its pool have been used. ``docs/drift.md`` has the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.benchmark.evaluate import Evaluation, needed_recipes, run_stream
from btfl.data.source import Labels
from btfl.data.streams import STREAMS, Manifest, Stream
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.load import embedded, load_data
from btfl.methods.registry import Variant, find_method
from btfl.models.forward import extract
from btfl.randomness import generator
from btfl.runs.client import DeployedClient
from btfl.runs.layout import RunFiles
from btfl.runs.results import Predictions, client_rows
from btfl.runs.saved import load_run
from btfl.runs.trained import TrainedFederation

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

BASE = STREAMS[:4]
"""What is picked from: A and B are internal, C and D external."""
FEATURE_METHODS = ("fedavg", "personal", "btfl", "btfl-release", "fedthe-on-fedavg", "coherent", "oracle")
FILE = "scenarios.parquet"


@dataclass(frozen=True)
class Scenario:
    """A kind of stream."""

    name: str
    family: str
    """Which scenarios stand together in a table."""
    summary: str
    external: Callable[[int, np.random.Generator], Flags]
    """Which places of a stream of so many samples are external."""
    by_class: bool = False
    """Whether internal and external samples each come one class at a time."""


def _switching(period: int) -> Scenario:
    def external(length: int, rng: np.random.Generator) -> Flags:
        return np.asarray(np.arange(length) // period % 2 == 1)

    return Scenario(f"switch-{period}", "switching", f"IND and EXD in turn, {period:,} samples each", external)


def _mixed(percent: int) -> Scenario:
    def external(length: int, rng: np.random.Generator) -> Flags:
        return rng.permutation(length) < round(length * percent / 100)

    return Scenario(f"mixed-{percent}", "mixtures", f"{percent} % external, in random order", external)


def _drifting(length: int, rng: np.random.Generator) -> Flags:
    return rng.random(length) < np.arange(length) / max(length - 1, 1)


def _bursts(length: int, rng: np.random.Generator) -> Flags:
    flags = np.zeros(length, dtype=np.bool_)
    place = int(rng.integers(50, 151))
    while place < length:
        burst = int(rng.integers(5, 21))
        flags[place : place + burst] = True
        place += burst + int(rng.integers(50, 151))
    return flags


def _second_half(length: int, rng: np.random.Generator) -> Flags:
    return np.arange(length) >= length // 2


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *(_switching(period) for period in (50, 200, 1000)),
        Scenario("drift", "changing", "the share of external samples grows evenly from 0 to 1", _drifting),
        Scenario("bursts", "changing", "IND, with 5 to 20 external samples after every 50 to 150", _bursts),
        Scenario("classes", "changing", "IND, then EXD, each one class at a time", _second_half, by_class=True),
        *(_mixed(percent) for percent in (5, 25, 50, 75, 95)),
    )
}


def find_scenario(name: str) -> Scenario:
    """Return a scenario by its name."""
    if name not in SCENARIOS:
        raise UnknownNameError("scenario", name, SCENARIOS)
    return SCENARIOS[name]


@dataclass(frozen=True, eq=False)
class Picks:
    """A stream as an order of picks from the base streams."""

    name: str
    stream: NDArray[np.int8]
    """Which base stream, as its place in ``BASE``."""
    index: NDArray[np.int64]
    """Which sample of it."""

    @property
    def external(self) -> Flags:
        """Whether each sample is external."""
        return np.asarray(self.stream >= 2)

    def of(self, parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the picks from what each base stream has: its features, or its labels."""
        starts = np.cumsum([0, *(len(parts.get(name, ())) for name in BASE[:-1])])
        there = np.concatenate([parts[name] for name in BASE if name in parts])
        chosen: NDArray[Any] = there[starts[self.stream] + self.index]
        return chosen


def draw_picks(
    scenario: Scenario, labels: Mapping[str, Labels], seed: int, client: int, length: int, *, shifted: bool = False
) -> Picks:
    """Draw a scenario for one client: a pure function of its arguments, and of the labels only their number.

    Only where samples come class by class are the labels themselves used, to sort by.
    """
    if length < 2:
        raise InputError(f"a stream has at least 2 samples, not {length}")
    rng = generator(seed, "scenario", scenario.name, client)
    external = scenario.external(length, rng)
    picks = fill(scenario.name, external, {name: len(labels.get(name, ())) for name in BASE}, rng, shifted=shifted)
    if not scenario.by_class:
        return picks
    order = np.lexsort((picks.of(labels), external))
    return Picks(picks.name, picks.stream[order], picks.index[order])


def fill(
    name: str, external: Flags, sizes: Mapping[str, int], rng: np.random.Generator, *, shifted: bool = False
) -> Picks:
    """Fill the internal and the external places from their pools."""
    stream, index = np.empty(len(external), np.int8), np.empty(len(external), np.int64)
    for first, places in ((0, ~external), (2, external)):
        numbers = range(first, first + (2 if shifted else 1))
        pool = np.array([(number, i) for number in numbers for i in range(sizes.get(BASE[number], 0))]).reshape(-1, 2)
        needed = int(places.sum())
        if needed and not len(pool):
            raise InputError(f"the stream {BASE[first]} is empty: this client has no samples to pick from")
        rounds = -(-needed // max(len(pool), 1))
        chosen = np.concatenate([pool[:0], *(rng.permutation(pool) for _ in range(rounds))])[:needed]
        stream[places], index[places] = chosen.T
    return Picks(name, stream, index)


def open_run(folder: str | Path, methods: Sequence[str] = FEATURE_METHODS, root: Path | None = None) -> Evaluation:
    """Open a finished run of ``btfl bench`` for methods that need features only."""
    folder, chosen = Path(folder), tuple(_feature_method(name) for name in methods)
    experiment = make_experiment({**load_run(folder).experiment, "methods": tuple(methods)})
    federations = {}
    for recipe in needed_recipes(chosen):
        place = RunFiles(folder).training(recipe).final
        if not place.record.exists():
            raise StorageError(
                f"{folder} has no federation trained with the recipe '{recipe}': choose other methods, or run "
                "`btfl bench` with a method that needs it"
            )
        federations[recipe] = TrainedFederation.load(place.folder)
    data, embedder = embedded(experiment, load_data(experiment, root))
    return Evaluation(data.source, Manifest.load(folder), federations, chosen, embedder=embedder)


def _feature_method(name: str) -> Variant:
    method = find_method(name)
    if method.method.takes != "features":
        raise InputError(
            f"method '{name}' works on images, and scenarios are made of features computed once: choose among "
            f"methods that see features, such as {', '.join(FEATURE_METHODS)}"
        )
    method.method.check_settings(method.settings)
    return method


@dataclass(frozen=True, eq=False)
class Base:
    """What one client's scenarios are drawn from."""

    number: int
    labels: Mapping[str, Labels]
    """Of each base stream that there is; for judging, never for a method."""
    clients: Mapping[str, DeployedClient]
    """By recipe."""
    features: Mapping[str, Mapping[str, Floats]]
    """By recipe and base stream."""


def make_base(evaluation: Evaluation, number: int) -> Base:
    """Render a client's base streams and compute their features, once."""
    streams = evaluation.streams(number)
    there = [name for name in BASE if name in streams]  # vectors may have no shifted streams
    clients = {recipe: federation.client(number) for recipe, federation in evaluation.federations.items()}
    features = {
        recipe: {name: extract(client.extractor(), streams[name].values).astype(np.float64) for name in there}
        for recipe, client in clients.items()
    }
    return Base(number, {name: streams[name].labels for name in there}, clients, features)


@dataclass(frozen=True)
class ScenarioSettings:
    """How the scenarios are drawn, and how many samples a method sees at a time."""

    seed: int = 0
    length: int = 4000
    shifted: bool = False
    """Whether B and D are in the pools too."""
    test_batch: int = 32


def run_client(
    base: Base, methods: Sequence[Variant], names: Sequence[str], settings: ScenarioSettings
) -> pd.DataFrame:
    """Run every method on every scenario of one client: a row for each."""
    found = [_run(base, method, scenario, settings) for scenario in map(find_scenario, names) for method in methods]
    rows = client_rows(found, settings.test_batch).rename(columns={"stream": "scenario"})
    rows["external_share"] = [float(one.external.mean()) for one in found]
    rows["internal_accuracy"] = [_mean(one.right[~one.external]) for one in found]
    rows["external_accuracy"] = [_mean(one.right[one.external]) for one in found]
    return rows


def run_scenarios(
    evaluation: Evaluation, names: Sequence[str], settings: ScenarioSettings, constants: Mapping[str, Any]
) -> Iterator[pd.DataFrame]:
    """Run client after client; ``constants`` are columns that hold for the whole table."""
    columns = {**constants, "scenario_seed": settings.seed, "shifted": settings.shifted}
    for number in range(evaluation.seen):
        yield run_client(make_base(evaluation, number), evaluation.methods, names, settings).assign(**columns)


def _run(base: Base, method: Variant, scenario: Scenario, settings: ScenarioSettings) -> Predictions:
    picks = draw_picks(scenario, base.labels, settings.seed, base.number, settings.length, shifted=settings.shifted)
    recipe = method.trained_with
    seen = picks.of(base.features[recipe])
    no_images = np.empty((0, 0, 0, 0), np.uint8)  # features are all these methods see
    stream = Stream(scenario.name, no_images, picks.of(base.labels), picks.external)
    batch = method.test_batch or settings.test_batch
    return run_stream(method, method.build(base.clients[recipe]), base.number, stream, seen, batch)


def _mean(right: Flags) -> float:
    return float(right.mean()) if len(right) else float("nan")
