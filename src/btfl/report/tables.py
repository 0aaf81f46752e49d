"""The main table, for a terminal, as Markdown and as HTML."""

from __future__ import annotations

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from btfl.data.streams import Manifest

HEADINGS = {
    "original_ind": "A IND",
    "shifted_ind": "B IND shifted",
    "original_exd": "C EXD",
    "shifted_exd": "D EXD shifted",
    "synthetical": "E mixed",
    "average": "average",
    "mean_e": "mean e",
}


def notes(manifest: Manifest) -> list[str]:
    """Give what a reader must know to read the table rightly."""
    lines = [
        "Accuracy in %, mean over clients; average: mean of the five streams; mean e: weight of the global head.",
        f"Other domain in B and D: {manifest.shift_name}."
        if not manifest.corrupted_throughout
        else "There is no other domain here: B and D are corrupted throughout.",
    ]
    if manifest.partition.split == "redrawn":
        lines.append("LEAKING SPLIT (redrawn): test images were trained on in other rounds. For comparison only.")
    return lines


def cell(column: str, value: float) -> str:
    """Write a number as the table shows it."""
    if pd.isna(value):
        return "–"
    return f"{value:.3f}" if column == "mean_e" else f"{value:.2f}"


def terminal_table(table: pd.DataFrame, title: str) -> Table:
    """Draw the table for a terminal, the best method of each column in bold (the oracle is none)."""
    drawn = Table(title=title, header_style="bold", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    drawn.add_column("method", no_wrap=True)
    for column in table.columns:
        drawn.add_column(HEADINGS[column].replace(" ", "\n", 1), justify="right")
    best = table.drop(index="Oracle", errors="ignore").drop(columns="mean_e").max()
    for name, row in table.iterrows():
        cells = []
        for column, value in row.items():
            text = cell(str(column), value)
            is_best = column in best.index and value == best[column] and name != "Oracle"
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        drawn.add_row(str(name), *cells)
    return drawn


def markdown_table(table: pd.DataFrame) -> str:
    """Write the table as Markdown."""
    head = "| method | " + " | ".join(HEADINGS[c] for c in table.columns) + " |"
    rule = "| --- |" + " ---: |" * len(table.columns)
    body = [
        f"| {name} | " + " | ".join(cell(str(column), value) for column, value in row.items()) + " |"
        for name, row in table.iterrows()
    ]
    return "\n".join([head, rule, *body]) + "\n"
