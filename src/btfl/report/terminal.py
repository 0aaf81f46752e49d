"""The main table for a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from btfl.report.table import Cell, Table

_LABEL = 10  # least width of the first column: what a row is about is never dropped
_MARKS = {"best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]", "": "{}"}


def terminal_table(table: Table) -> RichTable:
    """Draw a table for a terminal: best in bold, second best underlined, what is set apart below a line."""
    drawn = RichTable(title=table.title, header_style="bold", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for i, heading in enumerate(table.headings):
        drawn.add_column(
            heading.replace(" ", "\n"), justify="right" if i else "left", no_wrap=i > 0, min_width=None if i else _LABEL
        )
    for i, row in enumerate(table.rows):
        if row.apart and i and not table.rows[i - 1].apart:
            drawn.add_section()
        label, *values = row.cells
        drawn.add_row(_shown(label, label.text), *(_shown(cell, _fitted(cell.text)) for cell in values))
    return drawn


def _shown(cell: Cell, text: str) -> str:
    return _MARKS[cell.mark].format(text.replace("[", "\\["))  # brackets are no markup


def _fitted(text: str) -> str:
    """Write a spread or an interval below its number, so that the table fits into eighty columns."""
    return text.replace(" ± ", "\n± ").replace(" (", "\n(").replace(" to ", " to\n")
