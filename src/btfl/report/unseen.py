"""Clients that took part in training beside clients that were enrolled when it had ended."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from btfl.report.accuracy import AVERAGE, LEVEL, Interval, by_client, means
from btfl.report.groups import Group
from btfl.report.table import Cell, Row, Table, number, number_cell, text_cell

LEVELS = {
    "all": "new, all labels",
    "20": "new, 20 labels",
    "5": "new, 5 labels",
    "unlabelled": "new, unlabelled",
    "none": "new, nothing",
    "stream": "new, stream",
}
"""What a client that was held out brings, and how a table calls it."""
_HEADINGS = dict(zip(("original_ind", "shifted_ind", "original_exd", "shifted_exd", "synthetical"), "ABCDE",
                     strict=True))  # fmt: skip


def unseen_table(group: Group) -> Table | None:
    """Return each method on clients that were trained and on new ones, by what these brought; None: none were held out.

    The last column is the average over the streams with its interval over clients.
    """
    found = [run.unseen for run in group.runs if run.unseen is not None]
    if len(found) < len(group.runs):
        return None
    rows = pd.concat(found, ignore_index=True)
    lines: list[Row] = []
    for method, title in group.titles.items():
        own = rows[rows["method"] == method]
        if len(own):
            lines += _of_method(group, method, title, own)
    if not lines:
        return None
    new = rows.groupby("seed")["client"].nunique()
    seen = group.rows.groupby("seed")["client"].nunique()
    fewer = rows[rows["level"] == "20"]["labels_given"]
    less = int((fewer < 20).sum()) if len(fewer) else 0
    return Table(
        group.file("unseen"),
        f"Clients that were trained, and new ones: accuracy in %, {group.label}",
        ("method", "client", *(_HEADINGS[stream] for stream in group.streams), f"average ({LEVEL:.0%})"),
        tuple(lines),
        (
            f"Trained: {_range(seen)} clients of a seed. New: {_range(new)} others, of whom nothing was in training or "
            "in the totals; they were enrolled afterwards with the labels of all their training samples, 20 or 5, with "
            "these samples and no label, or with nothing; stream: with nothing, and label shares learned along.",
            f"In brackets: {LEVEL:.0%} bootstrap interval over the clients"
            f"{' and seeds' if len(group.seeds) > 1 else ''}. The two kinds of clients are different people: a "
            "difference between them holds the luck of the draw, too.",
            "A method is missing where it cannot do with what a client brings. Streams C and D are drawn from all "
            "others' test parts, for both kinds.",
            *([f"Fewer than 20 labels were there for some clients ({less} rows)."] if less else []),
        ),
    )


def _of_method(group: Group, method: str, title: str, new: pd.DataFrame) -> Iterator[Row]:
    streams = group.streams
    seen = group.rows[group.rows["method"] == method]
    parts = {"trained": seen, **{name: new[new["level"] == level] for level, name in LEVELS.items()}}
    for name, part in parts.items():
        if len(part):
            intervals = dict(zip([*streams, AVERAGE], means(by_client(part)), strict=True))
            cells = [number_cell(intervals[stream].difference) for stream in streams]
            yield Row((text_cell(title), text_cell(name), *cells, _cell(intervals[AVERAGE])), method=method)


def _cell(found: Interval) -> Cell:
    text = f"{number(found.difference)} ({number(found.low, 1)} to {number(found.high, 1)})"
    return Cell(text, found.difference, parts={"low": found.low, "high": found.high})


def _range(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"
