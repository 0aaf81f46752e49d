"""``btfl demo``: the whole line in half a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import options


def demo(
    out: options.Out = Path("runs/demo"),
    workers: options.Workers = options.DEFAULT_WORKERS,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    overwrite: options.Overwrite = False,
) -> None:
    """Train a small federation on handwritten digits and compare the methods.

    Nothing is downloaded; it takes about half a minute and ends with a table and a report.

    Example: `btfl demo --workers 2`
    """
    from btfl.cli.running import run_and_show
    from btfl.experiments.gather import gather
    from btfl.experiments.sweep import make_sweep

    sweep = make_sweep(gather("demo", {"seed": seed}))
    run_and_show(sweep, out or Path("runs/demo"), workers, overwrite=overwrite)
