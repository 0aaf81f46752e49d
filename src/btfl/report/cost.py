"""The cost of adapting: each method beside the bare forward pass, and beside what the paper measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from btfl.report import paper
from btfl.report.groups import Group
from btfl.report.table import Cell, Row, Table, number, number_cell, text_cell
from btfl.runs.costs import FORWARD, Cost, read_costs


def cost_tables(group: Group) -> list[Table]:
    """Return the table of what a group of runs measured at batch 1; empty where nothing was timed."""
    together: dict[str, Cost] = {}
    for run in group.runs:
        for cost in read_costs(run.folder):
            one = together.setdefault(cost.method, replace(cost, seconds_per_1000=[], ratios=[]))
            one.seconds_per_1000.extend(cost.seconds_per_1000)
            one.ratios.extend(cost.ratios)
    if not together:
        return []
    as_printed = group.first.record["data"]["source"] == "cifar10"  # the paper timed CIFAR-10 alone
    table = cost_table(list(together.values()), beside_the_paper=as_printed)
    return [replace(table, name=group.file("speed"), title=f"{table.title}: {group.label}", headline=True)]


def cost_table(costs: Sequence[Cost], *, beside_the_paper: bool = True) -> Table:
    """Return the table of costs for one model and batch size; ``beside_the_paper``: with what the paper measured."""
    batch = costs[0].batch
    beside_the_paper = beside_the_paper and batch == 1
    rows = []
    for cost in costs:
        theirs, their_btfl = _printed(cost.model, cost.method), _printed(cost.model, "btfl")
        ours = [other.seconds for other in costs if other.method == "btfl"]
        to_btfl = cost.seconds / ours[0] if ours else math.nan
        cells = (
            text_cell(cost.title),
            _spread(cost.seconds_per_1000, cost.seconds),
            _spread(cost.ratios, cost.ratio),
            number_cell(math.nan if cost.peak_megabytes is None else cost.peak_megabytes, 0),
            number_cell(to_btfl, 1),
            number_cell(theirs / their_btfl if beside_the_paper else math.nan, 1),
            number_cell(theirs if beside_the_paper else math.nan),
        )
        rows.append(Row(cells, False, cost.method))
    return Table(
        f"cost-{costs[0].model}-batch-{batch}",
        f"Seconds for 1,000 samples at batch {batch}, {costs[0].model}",
        ("method", "seconds", "x forward pass", "peak MB", "x BTFL", "paper: x BTFL", "paper: seconds"),
        tuple(rows),
        (
            f"One thread, wall time, {len(costs[0].ratios)} repeats: the median ± half of least to most. Peak memory "
            "is that of a process that does nothing else, with torch in it.",
            "The paper's seconds are from an RTX 3090 server, at batch 1: compare the ratios, not the seconds.",
        ),
    )


def _spread(values: Sequence[float], middle: float) -> Cell:
    text = f"{number(middle, 3)} ± {number((max(values) - min(values)) / 2, 3)}"
    return Cell(text, middle, parts={"least": min(values), "most": max(values)})


def _printed(model: str, method: str) -> float:
    method = method.split("[")[0]
    if method == FORWARD or method not in paper.METHODS:
        return math.nan
    table = paper.speed_table()
    match = table[(table["model"] == model) & (table["method"] == paper.METHODS[method])]
    return float(match["seconds_per_1000"].iloc[0]) if len(match) else math.nan
