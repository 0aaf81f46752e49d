"""What a run cost, kept apart from its results: timings are no function of the settings.

``speed.json`` has careful timings (``btfl speed``, ``btfl reproduce table3``); ``times.json`` how long each method took
in the benchmark itself; the logs of the trainings have seconds and bytes of each round.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from btfl.errors import StorageError
from btfl.runs.layout import RunFiles
from btfl.runs.results import Predictions
from btfl.runs.schema import CostEntry, LogLine, TimeEntry, check
from btfl.storage import LARGEST_JSON, parse_json, read_file, read_json, write_json

FORWARD = "forward"
"""Stands for a method: the bare forward pass, which the others are compared with."""


@dataclass(frozen=True)
class Cost:
    """What one method cost with one model at one batch size; an entry for each repeat."""

    model: str
    method: str
    title: str
    batch: int
    seconds_per_1000: list[float] = field(default_factory=list)
    """For 1,000 samples."""
    ratios: list[float] = field(default_factory=list)
    """To the bare forward pass in the same repeat."""
    peak_megabytes: float | None = None
    """Of a process that does nothing else, torch included; None: not measured, or not on Linux."""

    @property
    def seconds(self) -> float:
        """The median over the repeats."""
        return statistics.median(self.seconds_per_1000)

    @property
    def ratio(self) -> float:
        """The median over the repeats."""
        return statistics.median(self.ratios)


def write_costs(costs: Sequence[Cost], path: Path) -> None:
    """Write costs as JSON, every repeat included."""
    write_json(path, [asdict(cost) for cost in costs])


def read_costs(folder: Path) -> list[Cost]:
    """Read what was timed in a run; empty if nothing was."""
    path = RunFiles(folder).costs
    if not path.exists():
        return []
    found = read_json(path)
    if not isinstance(found, list):
        raise StorageError(f"{path} is damaged: it is no list of costs")
    for entry in found:
        check(CostEntry, entry, path)
    return [Cost(**entry) for entry in found]


@dataclass
class Times:
    """How long methods took in a benchmark run: seconds and samples by method, over all clients and streams."""

    of_method: dict[str, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of_run(cls, folder: Path) -> Times:
        """Read what a run has measured; nothing if it has not."""
        path = RunFiles(folder).times
        if not path.exists():
            return cls()
        found = read_json(path)
        if not isinstance(found, dict):
            raise StorageError(f"{path} is damaged: it holds no methods by name")
        for entry in found.values():
            check(TimeEntry, entry, path)
        return cls({name: (entry["seconds"], entry["samples"]) for name, entry in found.items()})

    def add(self, predictions: Iterable[Predictions]) -> None:
        """Add what some streams took."""
        for one in predictions:
            seconds, samples = self.of_method.get(one.method.name, (0.0, 0))
            self.of_method[one.method.name] = (seconds + one.seconds, samples + len(one.labels))

    def write(self, folder: Path) -> None:
        """Write them as JSON."""
        entries = self.of_method.items()
        write_json(RunFiles(folder).times, {name: {"seconds": s, "samples": n} for name, (s, n) in entries})

    def microseconds(self, method: str) -> float:
        """Return the mean time of a sample; NaN if it was not measured."""
        seconds, samples = self.of_method.get(method, (0.0, 0))
        return 1e6 * seconds / samples if samples else math.nan


@dataclass(frozen=True)
class TrainingCost:
    """What a training cost, all clients and rounds together; NaN where it was not measured."""

    seconds: float
    """Wall time of all rounds."""
    bytes_up: float
    """Arrays that clients uploaded."""
    bytes_down: float
    """Arrays that the server sent them."""

    def __add__(self, other: TrainingCost) -> TrainingCost:
        return TrainingCost(
            self.seconds + other.seconds, self.bytes_up + other.bytes_up, self.bytes_down + other.bytes_down
        )


NOT_MEASURED = TrainingCost(math.nan, math.nan, math.nan)


def training_cost(folder: Path, recipe: str) -> TrainingCost:
    """Read from a run's logs what the rounds of a recipe cost; where weights came from elsewhere it is not known.

    A round that was done again after a kill counts once, as it was done last. Rounds that were taken from another
    recipe of the run cost what they cost there.
    """
    return _training_cost(folder, recipe, ())


def _training_cost(folder: Path, recipe: str, takers: tuple[str, ...]) -> TrainingCost:
    """Return the cost for ``takers``: recipes that have taken the rounds of this one, the last taker last."""
    path = RunFiles(folder).training(recipe).log
    if recipe in takers:
        raise StorageError(f"{path} is damaged: it says that {recipe} has taken its rounds from itself")
    if not path.exists():
        return NOT_MEASURED
    lines = [_log_line(line, path) for line in read_file(path, LARGEST_JSON).splitlines()]
    rounds = {line.round: line for line in lines if line.event == "round"}
    taken = [line for line in lines if line.event == "taken"]
    start = TrainingCost(0.0, 0.0, 0.0)
    total = _training_cost(folder, taken[-1].recipe, (*takers, recipe)) if taken else start
    first = taken[-1].rounds + 1 if taken else 1
    ends = [line.round for line in lines if line.event == "end"]
    if not ends or len(rounds) != ends[-1] + 1 - first or sorted(rounds) != list(range(first, ends[-1] + 1)):
        return NOT_MEASURED
    for line in rounds.values():
        total += TrainingCost(line.seconds, line.bytes_up, line.bytes_down)
    return total


def _log_line(line: bytes, path: Path) -> LogLine:
    return check(LogLine, parse_json(line, path), path)
