"""What `btfl scenarios` and `btfl drift` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.report.table import Table

Shifted = Annotated[bool, typer.Option("--shifted", help="Pick from the shifted streams B and D too.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Random seed of the draws. Default: the run's own seed.")]
Root = Annotated[Path | None, typer.Option(help="Where the dataset is, if not where the run found it.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Default: the run's own folder.")]


def show_tables(tables: Sequence[Table], page: Path, console: Console) -> None:
    """Write tables as Markdown and print them, with the notes of the first."""
    from btfl.report.formats import to_markdown
    from btfl.report.terminal import terminal_table
    from btfl.storage import write_atomically

    write_atomically(page, "\n".join(map(to_markdown, tables)).encode())
    for table in tables:
        console.print(terminal_table(table))
    for note in tables[0].notes:
        console.print(note, highlight=False, markup=False)
