"""Write the numbers of ``btfl reproduce --list`` again from the rows in ``results/``.

Run as ``python benchmarks/reproduced.py`` after a folder of ``results/`` has changed, and read the sentences beside the
numbers in ``src/btfl/experiments/reproduced.toml`` again: they are written by hand.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from btfl.experiments.evidence import FILE, Number, evidence
from btfl.report.accuracy import values_of
from btfl.report.groups import Group, group_runs, load_runs
from btfl.storage import write_atomically

ROOT = Path(__file__).parents[1]
PATH = ROOT / "src" / "btfl" / "experiments" / FILE
DIGITS = {"accuracy": 2, "mean_e": 3}


@cache
def group_of(folder: str) -> Group:
    """Return the runs of a result folder."""
    (group,) = group_runs(load_runs([ROOT / "results" / folder]))
    return group


def found(number: Number) -> float:
    """Return what the rows say: the mean over clients, then over seeds, as tables have it."""
    group = group_of(number.folder)
    if number.measure == "mean_e":
        rows = group.rows[(group.rows["method"] == number.method) & (group.rows["stream"] == number.stream)]
        return round(float(rows["mean_e"].mean()), DIGITS["mean_e"])
    values = values_of(group.by_seed, number.method, number.stream)
    return round(float(values.mean()), DIGITS["accuracy"])


def main() -> None:
    """Write them."""
    text = PATH.read_text()
    numbers = iter([number for each in evidence().values() for number in each.numbers])
    written = re.sub(r"\bours = [\d.]+", lambda _: _as_toml(next(numbers)), text)
    write_atomically(PATH, written.encode())


def _as_toml(number: Number) -> str:
    return f"ours = {found(number):.{DIGITS[number.measure]}f}"


if __name__ == "__main__":
    main()
