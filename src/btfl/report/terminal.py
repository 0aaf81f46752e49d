"""Tables for a terminal: those that are too wide for it go on below, with the labels again."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table as RichTable
from rich.text import Text

from btfl.report.table import Cell, Table

_LABEL = 10  # least width of the first column: what a row is about is never dropped
_WIDEST_LABEL = 24  # the settings of longer ones are on lines of their own
_ENDLESS = 10_000  # columns of a terminal in which any table fits, to measure it
_MARKS = {"best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]", "": "{}"}


class TerminalTable:
    """A table that rich can print: in parts, each with the labels, where the terminal is too narrow for one."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | RichTable]:
        yield Text(self.table.title, style="table.title")  # apart, so that a narrow table does not break its lines
        remaining = list(range(self._labels, len(self.table.headings)))
        tight = self._fitting(remaining, console, options, tight=False) < len(remaining)
        while remaining:
            fitting = self._fitting(remaining, console, options, tight=tight)
            yield self._drawn(remaining[:fitting], tight=tight)
            remaining = remaining[fitting:]

    @property
    def _labels(self) -> int:
        """How many columns say what a row is about: the first, and the second where the first is the same in some."""
        first = [row.cells[0].text for row in self.table.rows]
        both = [tuple(cell.text for cell in row.cells[:2]) for row in self.table.rows]
        return 2 if len(set(first)) < len(first) and len(set(both)) == len(both) else 1

    def _fitting(self, columns: Sequence[int], console: Console, options: ConsoleOptions, *, tight: bool) -> int:
        """Return how many of these columns there is room for; at least one."""
        endless = options.update(width=_ENDLESS)
        for count in range(len(columns), 1, -1):
            needed = console.measure(self._drawn(columns[:count], tight=tight), options=endless).minimum
            if needed <= options.max_width:
                return count
        return 1

    def _drawn(self, columns: Sequence[int], *, tight: bool) -> RichTable:
        """Draw some of the columns; ``tight``: closer together."""
        padding = (0, 1, 0, 0) if tight else (0, 1, 0, 1)
        table, drawn = self.table, RichTable(header_style="bold", box=SIMPLE_HEAD, padding=padding)
        labels = [_label(row.cells[0].text) for row in table.rows]
        longest = max([_LABEL, *(cell_len(line) for label in labels for line in label.split("\n"))])
        drawn.add_column(table.headings[0], min_width=min(longest, _WIDEST_LABEL), overflow="fold")
        columns = [*range(1, self._labels), *columns]
        for i in columns:
            heading = table.headings[i].replace(" ", "\n")
            lines = "\n".join([heading, *(_fitted(row.cells[i].text) for row in table.rows)]).split("\n")
            drawn.add_column(heading, justify="right", no_wrap=True, min_width=max(map(cell_len, lines)))
        for i, row in enumerate(table.rows):
            if row.apart and i and not table.rows[i - 1].apart:
                drawn.add_section()
            values = [_shown(row.cells[column], _fitted(row.cells[column].text)) for column in columns]
            drawn.add_row(_shown(row.cells[0], labels[i]), *values)
        return drawn


def to_text(table: Table, width: int = 80) -> str:
    """Return a table as plain text of at most this width."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(terminal_table(table))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip() + "\n"


def terminal_table(table: Table) -> TerminalTable:
    """Draw a table for a terminal: best in bold, second best underlined, what is set apart below a line."""
    return TerminalTable(table)


def _label(text: str) -> str:
    """Write the settings of a long label below its name, so that it is whole in a narrow column."""
    name, bracket, settings = text.partition(" [")
    if not bracket or cell_len(text) <= _WIDEST_LABEL:
        return text
    return "\n".join([name, *f"[{settings}".replace(",", ",\n").split("\n")])


def _shown(cell: Cell, text: str) -> str:
    return _MARKS[cell.mark].format(text.replace("[", "\\["))  # brackets are no markup


def _fitted(text: str) -> str:
    """Write a spread or an interval below its number, so that the table fits into eighty columns."""
    return text.replace(" ± ", "\n± ").replace(" (", "\n(").replace(" to ", " to\n")
