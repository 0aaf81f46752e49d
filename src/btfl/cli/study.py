"""What `btfl scenarios` and `btfl drift` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from btfl.cli import output

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.report.table import Table

Shifted = Annotated[bool, typer.Option("--shifted", help="Pick from the shifted streams B and D too.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Random seed of the draws. Default: the run's own seed.")]
Root = Annotated[Path | None, typer.Option(help="Where the dataset is, if not where the run found it.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Default: the run's own folder.")]


def show_tables(tables: Sequence[Table], page: Path, file: Path, what: str) -> None:
    """Write tables as Markdown and print them, with the notes of the first.

    Parameters
    ----------
    page : the Markdown file to write
    file : the file that has every number
    what : what that file holds, for a person
    """
    from btfl.report.formats import to_markdown, to_plain
    from btfl.report.terminal import terminal_table
    from btfl.storage import write_atomically

    write_atomically(page, "\n".join(map(to_markdown, tables)).encode())

    def show(console: Console) -> None:
        for table in tables:
            console.print(terminal_table(table))
        for note in () if output.current().quiet else tables[0].notes:
            console.print(note, highlight=False, markup=False)
        console.print(f"{what}: {file}", highlight=False, markup=False, soft_wrap=True)

    output.emit({"tables": [to_plain(table) for table in tables], "page": page, "file": file}, show)
