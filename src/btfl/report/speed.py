"""The cost of adapting, where a run measured it: ours beside the paper's."""

from __future__ import annotations

import math

from btfl.bench.speed import read_speed
from btfl.report import paper
from btfl.report.groups import Group, is_oracle
from btfl.report.table import Row, Table, number_cell, text_cell


def speed_tables(group: Group) -> list[Table]:
    """Give the table of seconds for 1,000 samples at batch 1; empty where nothing was timed."""
    measured = [timing for run in group.runs for timing in read_speed(run.folder)]
    if not measured:
        return []
    printed, model = paper.speed_table(), str(group.first.experiment["model"])
    if group.first.record["data"]["source"] != "cifar10":
        printed = printed.iloc[:0]  # the paper timed CIFAR-10 alone
    rows = []
    for name, title in group.titles.items():
        seconds = [timing.seconds_per_1000 for timing in measured if timing.method == name]
        if not seconds:
            continue
        match = printed[(printed["model"] == model) & (printed["method"] == paper.METHODS.get(name.split("[")[0]))]
        theirs = float(match["seconds_per_1000"].iloc[0]) if len(match) else math.nan
        cells = (
            text_cell(title),
            number_cell(sum(seconds) / len(seconds), 3),
            number_cell(min(seconds), 3),
            number_cell(theirs),
        )
        rows.append(Row(cells, is_oracle(name), name))
    return [
        Table(
            group.file("speed"),
            f"Seconds for 1,000 samples at batch 1: {group.label}",
            ("method", "mean", "least", "paper"),
            tuple(rows),
            (
                f"Wall time on this machine, one thread, features included; {measured[0].repeats} repeats of "
                f"{measured[0].samples} samples. The paper's, for CIFAR-10, are from a server with RTX 3090s: compare "
                "the ratios, not the seconds.",
            ),
            headline=True,
        )
    ]
