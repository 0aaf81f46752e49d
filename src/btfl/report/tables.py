"""The tables of one group of runs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.data.streams import LETTERS, STREAMS
from btfl.report import calibration, detection, paper
from btfl.report.accuracy import COLUMNS, LEVEL, Interval, by_seed, compare, spread, values_of
from btfl.report.groups import Group, is_oracle
from btfl.report.table import Cell, Row, Table, mark_best, number, number_cell, text_cell

HEADINGS = {
    "original_ind": "A IND",
    "shifted_ind": "B IND shifted",
    "original_exd": "C EXD",
    "shifted_exd": "D EXD shifted",
    "synthetical": "E mixed",
    "average": "average",
}
"""How a table calls the streams."""
OURS = ("coherent",)
"""Methods that are not the paper's but our own: each is compared with all others."""


def accuracy_table(group: Group) -> Table:
    """Accuracy by method and stream: mean and standard deviation over seeds."""
    seeds = by_seed(group.rows)
    weights = group.rows.groupby("method")["mean_e"].mean()
    rows = []
    for name in group.titles:
        cells = [_accuracy_cell(values_of(seeds, name, column)) for column in COLUMNS]
        rows.append(_row(group, name, [*cells, number_cell(float(weights[name]), 3)]))
    return Table(
        group.file("accuracy"),
        f"Accuracy in %: {group.label}",
        ("method", *(HEADINGS[column] for column in COLUMNS), "mean e"),
        mark_best(rows, range(1, len(COLUMNS) + 1)),
        tuple(accuracy_notes(group)),
        headline=True,
    )


def accuracy_notes(group: Group) -> list[str]:
    """Return what a reader must know to read the accuracy rightly."""
    seeds, data = group.seeds, group.first.record["data"]
    lines = [
        "Mean over clients, each counting the same; average: mean of the streams; mean e: weight of the global head.",
        f"Mean ± standard deviation over {len(seeds)} seeds ({', '.join(map(str, seeds))})."
        if len(seeds) > 1
        else f"One seed ({seeds[0]}): no standard deviation over seeds.",
        *(
            [f"Each client's accuracy is its mean over {group.draws} draws of the streams, on the same weights."]
            if group.draws > 1
            else []
        ),
        "B and D are half corrupted and half from another domain: " + data["shift"] + "."
        if data["shift"]
        else "There is no other domain here: B and D are corrupted throughout.",
    ]
    counts = group.rows.groupby("method")["seed"].nunique()
    lines += [
        f"{group.titles[name]} was run with {counts[name]} of {len(seeds)} seeds."
        for name in group.titles
        if counts[name] < len(seeds)
    ]
    streams = group.rows.groupby("method")["manifest"].nunique()
    lines += [
        f"{group.titles[name]} was run on {streams[name]} of {streams.max()} sets of streams, not all the others saw."
        for name in group.titles
        if group.draws > 1 and streams[name] < streams.max()
    ]
    if any(is_oracle(name) for name in group.titles):
        lines.append("The oracle is told the answers; it is a ceiling, set apart and not ranked.")
    if group.first.experiment["split"] == "redrawn":
        lines.append("LEAKING SPLIT (redrawn): test images were trained on in other rounds. For comparison only.")
    return lines


def interval_tables(group: Group) -> list[Table]:
    """BTFL's accuracy minus that of each other method, and our own method's, with paired bootstrap intervals."""
    names = dict.fromkeys([group.reference, *(name for name in OURS if name in group.titles)])
    return [_interval_table(group, name) for name in names if name is not None and len(group.titles) > 1]


def _interval_table(group: Group, reference: str) -> Table:
    title, rows = group.titles[reference], []
    for name in group.titles:
        if name == reference:
            continue
        found = compare(group.rows, reference, name)
        low, high = found["average"].low, found["average"].high
        verdict = "better" if low > 0 else "worse" if high < 0 else "not clear"
        rows.append(_row(group, name, [*(interval_cell(found[column]) for column in COLUMNS), text_cell(verdict)]))
    return Table(
        group.file("difference" if reference == group.reference else f"difference-{reference}"),
        f"{title} minus each method, in percentage points: {group.label}",
        ("method", *(HEADINGS[column] for column in COLUMNS), f"{title} is"),
        tuple(rows),
        (
            f"In brackets: {LEVEL:.0%} bootstrap interval over the same {len(group.rows['client'].unique())} clients"
            f"{' and seeds' if len(group.seeds) > 1 else ' (one seed, so seeds add nothing to it)'}. "
            "The last column judges the average; not clear: the interval holds zero.",
        ),
    )


def interval_cell(found: Interval) -> Cell:
    """Write a difference and, in brackets, its interval."""
    low, high = (number(value, 1, signed=True) for value in (found.low, found.high))
    text = f"{number(found.difference, signed=True)} ({low} to {high})"
    return Cell(text, found.difference, parts={"low": found.low, "high": found.high})


def paper_table(group: Group) -> Table | None:
    """Our accuracy beside the paper's, where dataset, model and heterogeneity match."""
    seeds, run = by_seed(group.rows), group.first
    batches = group.rows.groupby("method")["test_batch"].first()
    rows, misprints = [], []
    for name in group.titles:
        printed = paper.paper_row(run, name, int(batches[name]))
        if not printed:
            continue
        cells = []
        for column in COLUMNS:
            theirs, ours = printed.get(column), float(values_of(seeds, name, column).mean())
            cells.append(_beside(ours, theirs))
            if theirs is not None and theirs.misprint:
                misprints.append(f"† {paper.METHODS[name.split('[')[0]]}, {HEADINGS[column]}: {theirs.misprint}.")
        rows.append(_row(group, name, cells))
    if not rows:
        return None
    unlike = paper.differences(run)
    return Table(
        group.file("paper"),
        f"Ours / the paper's (difference), in %: {group.label}",
        ("method", *(HEADINGS[column] for column in COLUMNS)),
        tuple(rows),
        (
            "NOT LIKE FOR LIKE: " + "; ".join(unlike) + "."
            if unlike
            else "Same dataset, model, heterogeneity, clients, rounds and streams as the paper's.",
            *misprints,
        ),
        value_name="difference",
    )


def calibration_table(group: Group) -> Table:
    """Expected calibration error of every method by stream, and the log loss."""
    rows = []
    for name in group.titles:
        samples = group.samples[group.samples["method"] == name]
        streams = [samples[samples["stream"] == stream] for stream in STREAMS]
        five = pd.concat(streams)
        cells = [number_cell(_error(part) * 100) for part in (*streams, five)]
        rows.append(
            _row(group, name, [*cells, number_cell(calibration.log_loss(five["true_probability"].to_numpy()), 3)])
        )
    return Table(
        group.file("calibration"),
        f"Expected calibration error in %: {group.label}",
        ("method", *(HEADINGS[stream] for stream in STREAMS), "all five", "log loss (nats)"),
        mark_best(rows, range(1, len(STREAMS) + 3), least=True),
        (
            f"The distance of confidence and accuracy in {calibration.BINS} bins of equal width, "
            "all samples of all clients together: the lower the better.",
        ),
    )


def detection_table(group: Group) -> Table | None:
    """How well e separates external samples from internal ones; None if no method has an e."""
    rows = [
        _row(group, name, [number_cell(detection.mean_area(group.samples, name, pair), 3) for pair in detection.PAIRS])
        for name in group.telling("e")
    ]
    if not rows:
        return None
    return Table(
        group.file("detection"),
        f"e as a detector of external samples, area under the ROC curve: {group.label}",
        ("method", *detection.PAIRS),
        mark_best(rows, range(1, len(detection.PAIRS) + 1)),
        (
            "Mean over clients of the chance that an external sample has a larger e than an internal one; 0.5 is "
            "guessing. A against C and B against D compare two streams; inside E the two kinds are mixed.",
        ),
    )


def _accuracy_cell(values: NDArray[np.float64]) -> Cell:
    mean, std = float(values.mean()), spread(values)
    if std is None:
        return number_cell(mean)
    return Cell(f"{number(mean)} ± {number(std)}", mean, parts={"std": std})


def _beside(ours: float, theirs: paper.Printed | None) -> Cell:
    if theirs is None:
        return Cell(f"{number(ours)} / –", math.nan)
    difference = ours - theirs.accuracy
    dagger = "†" if theirs.misprint else ""
    return Cell(
        f"{number(ours)} / {number(theirs.accuracy)}{dagger} ({number(difference, signed=True)})",
        difference,
        parts={"ours": ours, "paper": theirs.accuracy},
    )


def _error(samples: pd.DataFrame) -> float:
    return calibration.reliability(samples["confidence"].to_numpy(), samples["right"].to_numpy(dtype=bool)).error


def _row(group: Group, name: str, cells: list[Cell]) -> Row:
    return Row((text_cell(group.titles[name]), *cells), is_oracle(name), name)


def stream_name(stream: str) -> str:
    """Return a stream's letter and name as figures write it."""
    return f"{LETTERS[stream]} {stream.replace('_', ' ').replace('ind', 'IND').replace('exd', 'EXD')}"
