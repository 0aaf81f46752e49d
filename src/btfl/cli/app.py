"""``btfl`` and its commands, in the order and the panels of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from btfl import __version__
from btfl.cli import boundary, data, flower, zoo
from btfl.cli.bench import bench
from btfl.cli.command import BenchCommand, Commands, ExperimentCommand, FileCommand
from btfl.cli.demo import demo
from btfl.cli.drift import drift
from btfl.cli.enrol import enrol
from btfl.cli.export import export
from btfl.cli.methods import methods
from btfl.cli.report import report
from btfl.cli.reproduce import reproduce
from btfl.cli.scenarios import scenarios
from btfl.cli.serve import TOKENS, ServeCommand, serve
from btfl.cli.speed import speed
from btfl.cli.train import train

FIRST, KNOWN = "Start here", "What there is"
STUDIES, ELSEWHERE = "The paper's tables, and studies", "Flower and devices"

app = Commands(
    name="btfl",
    help="Bayesian test-time generalisation for federated learning: train, benchmark, report.\n\n"
    "Start with `btfl demo`; it needs no download.",
)
app.command(rich_help_panel=FIRST)(demo)
app.command(rich_help_panel=FIRST, cls=BenchCommand)(bench)
app.command(rich_help_panel=FIRST, cls=ExperimentCommand)(train)
app.command(rich_help_panel=FIRST)(report)
app.command(rich_help_panel=KNOWN)(methods)
app.add_typer(data.app, name="data", rich_help_panel=KNOWN)
app.add_typer(zoo.app, name="zoo", rich_help_panel=KNOWN)
app.command(rich_help_panel=STUDIES, cls=FileCommand)(reproduce)
app.command(rich_help_panel=STUDIES, cls=FileCommand)(scenarios)
app.command(rich_help_panel=STUDIES, cls=FileCommand)(drift)
app.command(rich_help_panel=STUDIES)(speed)
app.command(rich_help_panel=ELSEWHERE, cls=FileCommand)(enrol)
app.command(rich_help_panel=ELSEWHERE, cls=FileCommand)(export)
app.command(rich_help_panel=ELSEWHERE, cls=ServeCommand)(serve)
app.add_typer(TOKENS, name="serve-token", rich_help_panel=ELSEWHERE)
app.add_typer(flower.app, name="flower", rich_help_panel=ELSEWHERE)


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error, too.")] = False,
) -> None:
    boundary.debug.set(debug)
    if version:
        typer.echo(f"btfl {__version__}")
        raise typer.Exit
