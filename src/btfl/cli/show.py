"""A report in a terminal: its main tables, and where the page is. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from btfl.report.build import write_report
from btfl.report.terminal import terminal_table


def show_report(
    folders: Sequence[Path],
    out: Path,
    console: Console,
    *,
    apart: bool = False,
    title: str | None = None,
    reference: str | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Write the report; print its main tables, the notes on them, what was found, and the page's path."""
    written = write_report(folders, out, apart=apart, title=title, reference=reference, extras=columns)
    for note in written.report.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    for table in (table for part in written.report.parts for table in part.tables if table.headline):
        console.print(terminal_table(table))
        for note in table.notes:
            console.print(note, highlight=False, markup=False)
        console.print()
    for said in written.report.verdicts:
        console.print(said, highlight=False, markup=False)
    console.print(f"Report: {written.page}", highlight=False, markup=False, soft_wrap=True)
