"""Compare a run of ``btfl bench --from zoo:NAME`` with committed rows: does the table come out of the entry?

``python benchmarks/zoo_tables.py runs/pacs-cnn-dir0.1 results/pacs-cnn-dir0.1-second``

Rows are compared by method, client and stream: counts of samples, of right answers and accuracy to the last digit, and
the mean weight of the global head to 1e-12, since the order of a sum moves its last bits. Of a folder with several runs
(1, 2, ...) the one of the same seed is taken. If both have their samples, as two runs have, answers are compared one by
one, too. Its exit status is 1 if a row of a method that was run differs or is missing, or if the streams are others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from btfl.data.manifest import Manifest
from btfl.report.groups import group_runs
from btfl.report.tables import accuracy_table
from btfl.runs.saved import SavedRun, load_run

KEYS = ["method", "client", "stream"]
SAMPLE = [*KEYS, "position"]
COUNTS, WEIGHT = ["samples", "correct", "accuracy"], "mean_e"
CLOSE = 1e-12
"""How far mean weights of rows that are the same may be apart."""


@dataclass(frozen=True)
class Agreement:
    """How far the rows of one method agree."""

    method: str
    recipe: str
    """What the committed run trained it with."""
    rows: int
    """Rows that are committed."""
    missing: int
    """Those that the new run lacks."""
    equal: int
    """Those that are the same."""
    answers: int
    """Right answers more or fewer, over all rows whose counts differ."""
    weight: float
    """The largest difference of the mean weight."""
    others: int | None = None
    """Samples with another answer; None: they are not kept."""


def compare(new: pd.DataFrame, kept: pd.DataFrame, others: Mapping[str, int] | None = None) -> list[Agreement]:
    """Compare rows of ``results.parquet``, method by method, in the order in which they are kept.

    ``others`` says of each method how many answers differ, where single ones are known (``other_answers``).
    """
    both = kept.merge(new[[*KEYS, *COUNTS, WEIGHT]], on=KEYS, how="left", suffixes=("", "_new"), validate="1:1")
    there = both["samples_new"].notna()
    same = pd.concat([both[name] == both[f"{name}_new"] for name in COUNTS], axis=1).all(axis=1)
    weights, weights_new = both[WEIGHT], both[f"{WEIGHT}_new"]
    same &= ((weights - weights_new).abs() <= CLOSE) | (weights.isna() & weights_new.isna())
    both["there"], both["same"] = there, same & there
    both["answers"] = (both["correct"] - both["correct_new"]).abs()
    both["weight"] = (weights - weights_new).abs()
    return [
        Agreement(
            str(method), str(rows["recipe"].iloc[0]), len(rows), int((~rows["there"]).sum()), int(rows["same"].sum()),
            int(rows["answers"].sum()), float(rows["weight"].fillna(0).max()),
            None if others is None else others.get(str(method), 0),
        )
        for method, rows in both.groupby("method", sort=False)
    ]  # fmt: skip


def other_answers(run: SavedRun, kept: SavedRun) -> dict[str, int] | None:
    """Return how many samples have another answer, by method; None if one of the two runs has no samples."""
    if not (run.has_samples and kept.has_samples):
        return None
    new, old = (one.samples[[*SAMPLE, "predicted"]] for one in (run, kept))
    both = old.merge(new, on=SAMPLE, suffixes=("", "_new"), validate="1:1")
    return {
        str(method): int(count)
        for method, count in (both["predicted"] != both["predicted_new"]).groupby(both["method"]).sum().items()
    }


def printed(run: SavedRun) -> dict[str, tuple[str, ...]]:
    """Return the rows of the accuracy table as they are printed, by method."""
    (group,) = group_runs([run])
    return {row.method: tuple(cell.text for cell in row.cells) for row in accuracy_table(group).rows}


def lines(found: Sequence[Agreement]) -> list[str]:
    """Return the comparison as a table of at most 80 columns."""
    written = [f"{'method':<28}{'recipe':<12}{'rows':>7}{'equal':>8}{'answers':>9}{'mean e':>8}{'other':>8}"]
    for each in found:
        here = each.missing < each.rows
        differs = (str(each.answers), f"{each.weight:.0e}" if each.weight else "0") if here else ("–", "–")
        others = "–" if each.others is None or not here else str(each.others)
        written.append(
            f"{each.method[:27]:<28}{each.recipe:<12}{each.rows:>7}{each.equal if here else '–':>8}"
            f"{differs[0]:>9}{differs[1]:>8}{others:>8}"
        )
    return written


def kept_run(folder: Path, seed: int) -> SavedRun:
    """Return the committed run of this seed: the folder itself, or one of the numbered ones in it."""
    places = [folder] if (folder / "run.json").exists() else sorted(path.parent for path in folder.glob("*/run.json"))
    for run in map(load_run, places):
        if run.seed == seed:
            return run
    raise SystemExit(f"{folder} holds no run of seed {seed}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run of `btfl bench --from zoo:NAME`")
    parser.add_argument("kept", type=Path, help="a folder of results/")
    asked = parser.parse_args()
    run = load_run(asked.run)
    kept = kept_run(asked.kept, run.seed)
    found = compare(run.rows, kept.rows, other_answers(run, kept))
    made = [each for each in found if each.missing < each.rows]
    absent = [each for each in found if each.missing == each.rows]
    print(f"{asked.run.name}, seed {run.seed}, beside {kept.folder}", *lines(found), sep="\n")
    rows, equal = sum(each.rows for each in made), sum(each.equal for each in made)
    whole = sum(each.equal == each.rows for each in made)
    right = sum(each.answers == 0 for each in made)
    print(f"{equal:,} of {rows:,} rows are equal; {whole} of {len(made)} methods in every row.")
    print(f"{right} of {len(made)} methods have as many right answers in every row.")
    here, there = printed(run), printed(kept)
    other = [each.method for each in made if here[each.method] != there[each.method]]
    print(
        f"Printed, {len(made) - len(other)} of {len(made)} rows of the table are the same.", *other, sep="\n  other: "
    )
    if absent:
        recipes = ", ".join(sorted({each.recipe for each in absent}))
        print(f"Not in this run: {len(absent)} methods, of these recipes:\n{recipes}")
    if not Manifest.load(run.folder).same_streams(Manifest.load(kept.folder)):
        print("The streams are others, so that rows cannot be compared.")
        return 1
    print(
        "answers: right ones more or fewer, summed over rows; mean e: the largest\ndifference; "
        "other: samples with another answer; –: not in this run, or not kept."
    )
    return 0 if equal == rows else 1


if __name__ == "__main__":
    sys.exit(main())
