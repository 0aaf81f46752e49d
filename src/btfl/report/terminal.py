"""The main table for a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from btfl.report.table import Table

_MARKS = {"best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]", "": "{}"}


def terminal_table(table: Table) -> RichTable:
    """Draw a table for a terminal: best in bold, second best underlined, what is set apart below a line."""
    drawn = RichTable(title=table.title, header_style="bold", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for i, heading in enumerate(table.headings):
        drawn.add_column(heading.replace(" ", "\n"), justify="right" if i else "left", no_wrap=i > 0)
    for i, row in enumerate(table.rows):
        if row.apart and i and not table.rows[i - 1].apart:
            drawn.add_section()
        drawn.add_row(*(_MARKS[cell.mark].format(_fitted(cell.text)) for cell in row.cells))
    return drawn


def _fitted(text: str) -> str:
    """Put a spread below its mean, so that eighty columns hold the table; brackets are no markup."""
    return text.replace(" ± ", "\n± ").replace("[", "\\[")
