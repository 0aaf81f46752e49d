"""The tables of one group of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.data.streams import LETTERS, STREAMS
from btfl.report import calibration, detection, paper
from btfl.report.accuracy import AVERAGE, LEVEL, Interval, compare_in, spread, values_of
from btfl.report.extras import EXTRAS
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
OURS = ("coherent", "coherent-1")
"""Methods that are not the paper's but our own, the newest first: the first of them that was run is compared with all
others."""


def accuracy_table(group: Group) -> Table:
    """Accuracy by method and stream: mean and standard deviation over seeds; and the columns that were asked for."""
    seeds, columns = group.by_seed, group.columns
    weights = group.rows.groupby("method")["mean_e"].mean()
    extras = [EXTRAS[name] for name in group.extras]
    rows = []
    for name in group.titles:
        cells = [spread_cell(values_of(seeds, name, column)) for column in columns]
        more = [spread_cell(extra.values(group, name), extra.digits) for extra in extras]
        rows.append(_row(group, name, [*cells, number_cell(float(weights[name]), 3), *more]))
    marked = mark_best(rows, range(1, len(columns) + 1))
    for place, extra in enumerate(extras, start=len(columns) + 2):
        if not extra.from_run:  # a cost that methods share is no merit
            marked = mark_best(marked, [place], least=extra.least, digits=extra.digits)
    return Table(
        group.file("accuracy"),
        f"Accuracy in %: {group.label}",
        ("method", *(HEADINGS[column] for column in columns), "mean e", *(extra.heading for extra in extras)),
        marked,
        (*accuracy_notes(group), *(extra.help for extra in extras)),
        headline=True,
    )


def accuracy_notes(group: Group) -> list[str]:
    """Return what a reader must know to read the accuracy rightly."""
    seeds = group.seeds
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
        _about_shifts(group),
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
    if group.may_differ:
        lines.append(
            "Trained further after trained weights were loaded, so that answers may differ on another make of "
            f"processor: {', '.join(group.titles[name] for name in group.may_differ)}."
        )
    if any(is_oracle(name) for name in group.titles):
        lines.append("The oracle is told the answers; it is a ceiling, set apart and not ranked.")
    if group.first.experiment["split"] == "redrawn":
        lines.append("LEAKING SPLIT (redrawn): test images were trained on in other rounds. For comparison only.")
    return lines


def _about_shifts(group: Group) -> str:
    """Say what B and D hold, or that they are left out and why."""
    data = group.first.record["data"]
    missing = [LETTERS[stream] for stream in STREAMS if stream not in group.streams]
    if {"shifted_ind", "shifted_exd"}.isdisjoint(group.streams):
        return (
            "B and D are left out: for these data there is neither another domain nor a corruption. The average is "
            f"that of {_and(LETTERS[stream] for stream in group.streams)}."
        )
    if missing:
        return f"Left out: {_and(missing)}, because these runs have no such stream. The average is that of the others."
    if data["shift"]:
        return f"B and D are half corrupted and half from another domain: {data['shift']}."
    return "There is no other domain here: B and D are corrupted throughout."


def interval_tables(group: Group) -> list[Table]:
    """One method's accuracy minus that of each other method, with paired bootstrap intervals.

    That is the method that was asked for, BTFL, and our own.
    """
    usual = replace(group, asked=None).reference
    ours = next((name for name in OURS if name in group.titles), None)
    names = dict.fromkeys([group.reference, usual, ours])
    return [_interval_table(group, name) for name in names if name is not None and len(group.titles) > 1]


def _interval_table(group: Group, reference: str) -> Table:
    title, rows = group.titles[reference], []
    for name in group.titles:
        if name == reference:
            continue
        found = compare_in(group.by_client, reference, name)
        low, high = found["average"].low, found["average"].high
        verdict = "better" if low > 0 else "worse" if high < 0 else "not clear"
        cells = [interval_cell(found[column]) for column in group.columns]
        rows.append(_row(group, name, [*cells, text_cell(verdict)]))
    return Table(
        group.file(_difference(group, reference)),
        f"{title} minus each method, in percentage points: {group.label}",
        ("method", *(HEADINGS[column] for column in group.columns), f"{title} is"),
        tuple(rows),
        (
            f"In brackets: {LEVEL:.0%} bootstrap interval over the same {len(group.rows['client'].unique())} clients"
            f"{' and seeds' if len(group.seeds) > 1 else ' (one seed, so seeds add nothing to it)'}. "
            "The last column judges the average; not clear: the interval holds zero.",
        ),
        headline=reference == group.asked,
    )


def _difference(group: Group, reference: str) -> str:
    """Name the table of differences: plainly for the group's reference, and by the method for all others."""
    if reference == group.reference:
        return "difference"
    plain = "".join(letter if letter.isalnum() or letter in "-_.=" else "-" for letter in reference)
    return f"difference-{plain.strip('-')}"


def interval_cell(found: Interval) -> Cell:
    """Write a difference and, in brackets, its interval."""
    low, high = (number(value, 1, signed=True) for value in (found.low, found.high))
    text = f"{number(found.difference, signed=True)} ({low} to {high})"
    return Cell(text, found.difference, parts={"low": found.low, "high": found.high})


def paper_table(group: Group) -> Table | None:
    """Our accuracy beside the paper's, where dataset, model and heterogeneity match."""
    seeds, run = group.by_seed, group.first
    batches = group.rows.groupby("method")["test_batch"].first()
    rows, misprints = [], []
    for name in group.titles:
        printed = paper.paper_row(run, name, int(batches[name]))
        if not printed:
            continue
        cells = []
        for column in group.columns:
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
        ("method", *(HEADINGS[column] for column in group.columns)),
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
        samples = group.samples_of(name)
        streams = [samples[samples["stream"] == stream] for stream in group.streams]
        every = pd.concat(streams)
        cells = [number_cell(_error(part) * 100) for part in (*streams, every)]
        rows.append(
            _row(group, name, [*cells, number_cell(calibration.log_loss(every["true_probability"].to_numpy()), 3)])
        )
    together = "all five" if len(group.streams) == len(STREAMS) else "all streams"
    return Table(
        group.file("calibration"),
        f"Expected calibration error in %: {group.label}",
        ("method", *(HEADINGS[stream] for stream in group.streams), together, "log loss (nats)"),
        mark_best(rows, range(1, len(group.streams) + 3), least=True),
        (
            f"The distance of confidence and accuracy in {calibration.BINS} bins of equal width, "
            "all samples of all clients together: the lower the better.",
        ),
    )


def detection_table(group: Group) -> Table | None:
    """How well e separates external samples from internal ones; None if no method has an e."""
    pairs = detection.pairs_in(group.streams)
    rows = [
        _row(group, name, [number_cell(detection.mean_area(group.samples_of(name), pair), 3) for pair in pairs])
        for name in group.telling("e")
    ]
    if not rows:
        return None
    compared = "A against C and B against D compare" if "B against D" in pairs else "A against C compares"
    return Table(
        group.file("detection"),
        f"e as a detector of external samples, area under the ROC curve: {group.label}",
        ("method", *pairs),
        mark_best(rows, range(1, len(pairs) + 1)),
        (
            "Mean over clients of the chance that an external sample has a larger e than an internal one; 0.5 is "
            f"guessing. {compared} two streams; inside E the two kinds are mixed.",
        ),
    )


def spread_cell(values: NDArray[np.float64], digits: int = 2) -> Cell:
    """Write the mean over seeds, and their standard deviation if there are several; NaN for no values."""
    mean = float(values.mean()) if len(values) else math.nan
    std = spread(values)
    if std is None or not math.isfinite(mean):
        return number_cell(mean, digits)
    return Cell(f"{number(mean, digits)} ± {number(std, digits)}", mean, parts={"std": std})


def _and(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


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


def ranked(methods: Iterable[str], averages: Mapping[str, float]) -> list[str]:
    """Return methods from the best average to the worst, what has none last, and ceilings below all of them."""
    return sorted(methods, key=lambda name: (is_oracle(name), math.isnan(averages[name]), -averages[name]))


def best_first(table: Table) -> Table:
    """Return a table with its rows from the best average to the worst, as people read it; others as they are.

    Files keep the order in which methods were named. A table of differences is ranked by the method that is compared:
    what comes closest to the reference, or passes it, is on top.
    """
    if AVERAGE not in table.headings:
        return table
    column = table.headings.index(AVERAGE)
    sign = 1 if table.name.startswith("difference") else -1

    def place(row: Row) -> tuple[bool, bool, float]:
        value = float(row.cells[column].value)
        return row.apart, math.isnan(value), sign * value if value == value else 0.0

    return replace(table, rows=tuple(sorted(table.rows, key=place)))


def shown_client(group: Group, method: str) -> int:
    """Choose the client a stream is shown of: the one with the median number of samples, so that none is picked."""
    samples = group.first.samples_of(method)
    counts = samples[samples["stream"] == STREAMS[4]].groupby("client").size()
    return int(counts.sort_values(kind="stable").index[len(counts) // 2])


def stream_name(stream: str) -> str:
    """Return a stream's letter and name as figures write it."""
    return f"{LETTERS[stream]} {stream.replace('_', ' ').replace('ind', 'IND').replace('exd', 'EXD')}"
