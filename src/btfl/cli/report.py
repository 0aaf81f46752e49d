"""``btfl report``: a page of tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import options


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs, or that hold some.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where the report is written.")
    ] = None,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart", help="Show runs of different datasets, splits or streams side by side, never averaged."
        ),
    ] = False,
    reference: options.Reference = None,
    columns: options.Columns = None,
) -> None:
    """Make a page with tables and figures from one or several runs.

    Runs that differ in the seed alone are averaged; other models or heterogeneities are shown side by side; streams of
    another kind are refused without `--apart`. Figures of the same runs are drawn once and kept (`btfl data clean`).

    Examples:

    `btfl report runs/demo`

    `btfl report runs/seed-0 runs/seed-1 runs/seed-2 --out report`

    `btfl report runs/demo-sweep --reference coherent --columns fairness,calibration`
    """
    from btfl.cli.show import show_report

    place = out or (runs[0] if len(runs) == 1 else Path("report"))
    named = options.named_columns(columns)
    show_report(runs, place, apart=apart, reference=reference, columns=named)
