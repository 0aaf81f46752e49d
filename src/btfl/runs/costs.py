"""What adapting cost in a run: ``speed.json`` beside its results."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

from btfl.storage import read_json

FORWARD = "forward"
FILE = "speed.json"  # timings are no function of the settings, so they stay out of a run's results


@dataclass(frozen=True)
class Cost:
    """What one method cost with one model at one batch size; an entry for each repeat."""

    model: str
    method: str
    title: str
    batch: int
    seconds_per_1000: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """To the bare forward pass in the same repeat."""
    peak_megabytes: float | None = None
    """Of a process that does nothing else, torch itself included; None: not measured, or not on Linux."""

    @property
    def seconds(self) -> float:
        """The median over the repeats."""
        return statistics.median(self.seconds_per_1000)

    @property
    def ratio(self) -> float:
        """The median over the repeats."""
        return statistics.median(self.ratios)


def read_costs(folder: Path) -> list[Cost]:
    """Read what ``measure_run`` found; empty if nothing was timed."""
    path = folder / FILE
    return [Cost(**entry) for entry in read_json(path)] if path.exists() else []
