"""A report in a terminal: its main tables, and where the page is. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from btfl.cli import output
from btfl.report.build import WrittenReport, write_report
from btfl.report.formats import to_plain
from btfl.report.table import Table
from btfl.report.tables import best_first
from btfl.report.terminal import terminal_table


def show_report(
    folders: Sequence[Path],
    out: Path,
    *,
    apart: bool = False,
    title: str | None = None,
    reference: str | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Write the report; print its main tables, the notes on them, what was found, and the page's path."""
    written = write_report(folders, out, apart=apart, title=title, reference=reference, extras=columns)

    def show(console: Console) -> None:
        for note in () if output.current().quiet else written.report.notes:
            console.print(f"note: {note}", highlight=False, markup=False)
        for table in _tables(written, every=output.current().verbose):
            console.print(terminal_table(best_first(table)))
            for note in () if output.current().quiet else table.notes:
                console.print(note, highlight=False, markup=False)
            console.print()
        if _new_clients(written) and output.current() == output.Output():
            console.print("Clients that were held out of training have a table in the report; --verbose prints it.\n")
        for said in written.report.verdicts:
            console.print(said, highlight=False, markup=False)
        console.print(f"Report: {written.page}", highlight=False, markup=False, soft_wrap=True)

    output.emit(_result(written, folders), show)


def _tables(written: WrittenReport, *, every: bool) -> list[Table]:
    return [table for part in written.report.parts for table in part.tables if table.headline or every]


def _new_clients(written: WrittenReport) -> bool:
    return any(group.first.unseen is not None for group in written.report.groups)


def _result(written: WrittenReport, folders: Sequence[Path]) -> dict[str, Any]:
    report = written.report
    return {
        "title": report.title,
        "verdicts": report.verdicts,
        "notes": report.notes,
        "runs": [str(run.folder) for group in report.groups for run in group.runs] or list(folders),
        "page": written.page,
        "tables": [to_plain(table) for table in _tables(written, every=True)],
    }
