"""A table, before it is a page, text, Markdown, CSV or LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

Mark = Literal["", "best", "second"]
MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """What a cell shows, what it is sorted by, and the numbers CSV keeps apart."""

    text: str
    value: float | str = math.nan
    mark: Mark = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by the end of their column's name, ``std`` for instance."""


@dataclass(frozen=True)
class Row:
    """A line of a table; one set apart takes no part in ranking."""

    cells: tuple[Cell, ...]
    apart: bool = False
    method: str = ""
    """The method's name, by which the page finds its colour and marker."""


@dataclass(frozen=True)
class Table:
    """A table with everything a reader needs to read it rightly."""

    name: str
    """For file names and links."""
    title: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    words: bool = False
    """Words rather than numbers: set flush left."""
    value_name: str = ""
    """What the numbers a column is sorted by are, where its heading does not say; CSV does."""
    headline: bool = False
    """Worth a terminal's space, too."""

    # The formats build on this module, so they are imported when one is asked for.

    def text(self, width: int = 80) -> str:
        """Return it as a terminal of this width shows it; what does not fit goes on below."""
        from btfl.report.terminal import to_text

        return to_text(self, width)

    def markdown(self) -> str:
        """Return it as Markdown."""
        from btfl.report.formats import to_markdown

        return to_markdown(self)

    def csv(self) -> str:
        """Return it as CSV, with all digits."""
        from btfl.report.formats import to_csv

        return to_csv(self)

    def latex(self) -> str:
        """Return it as a floating booktabs table."""
        from btfl.report.formats import to_latex

        return to_latex(self)

    def html(self) -> str:
        """Return it as HTML, with its notes."""
        from btfl.report.formats import to_html

        return to_html(self)

    def frame(self) -> pd.DataFrame:
        """Return its numbers, in full, indexed by the first column."""
        import io

        import pandas as pd

        return pd.read_csv(io.StringIO(self.csv()), index_col=0)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()


def number(value: float, digits: int = 2, *, signed: bool = False) -> str:
    """Write a number as tables show it, with a true minus."""
    if not math.isfinite(value):
        return MISSING
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    if float(text) == 0:
        text = f"{0:.{digits}f}"
    return text.replace("-", "−")


def text_cell(text: str) -> Cell:
    """Make a cell of words."""
    return Cell(text, text)


def number_cell(value: float, digits: int = 2, *, signed: bool = False) -> Cell:
    """Make a cell of one number."""
    return Cell(number(value, digits, signed=signed), value)


def mark_best(rows: Sequence[Row], columns: Sequence[int], *, least: bool = False, digits: int = 2) -> tuple[Row, ...]:
    """Mark the best and second best of each column, as they are printed: what looks equal is marked alike."""
    marked = list(rows)
    for column in columns:
        values = {
            i: round(float(row.cells[column].value), digits)
            for i, row in enumerate(rows)
            if not row.apart and math.isfinite(float(row.cells[column].value))
        }
        if len(values) < 2:
            continue
        ranks = sorted(set(values.values()), reverse=not least)
        marks: dict[float, Mark] = dict(zip(ranks, ("best", "second"), strict=False))
        for i, value in values.items():
            cells = list(marked[i].cells)
            cells[column] = replace(cells[column], mark=marks.get(value, ""))
            marked[i] = replace(marked[i], cells=tuple(cells))
    return tuple(marked)
