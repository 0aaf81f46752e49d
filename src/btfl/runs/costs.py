"""What adapting cost in a run, kept apart from its results: timings are no function of the settings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from btfl.errors import StorageError
from btfl.runs.layout import RunFiles
from btfl.runs.schema import CostEntry, check
from btfl.storage import read_json, write_json

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
