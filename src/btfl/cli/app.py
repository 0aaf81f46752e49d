"""``btfl`` and its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl import __version__
from btfl.cli import data, flower, options, zoo
from btfl.cli.export import export
from btfl.cli.scenarios import drift, scenarios
from btfl.cli.speed import speed
from btfl.cli.train import train

app = typer.Typer(
    name="btfl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Bayesian test-time generalisation for federated learning: train, benchmark, report.\n\n"
    "Start with `btfl demo`; it needs no download.",
)
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")
app.add_typer(zoo.app, name="zoo")
app.command()(drift)
app.command()(export)
app.command()(scenarios)
app.command()(speed)
app.command()(train)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Say the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"btfl {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: options.Out = Path("runs/demo"), workers: options.Workers = options.DEFAULT_WORKERS, seed: int = 0
) -> None:
    """Train a small federation on handwritten digits and compare the methods on its five streams.

    Nothing is downloaded; it takes about half a minute and ends with a table and a report.

    Example: `btfl demo --workers 2`
    """
    from btfl.cli.bench import run_and_show
    from btfl.experiments.experiment import make_experiment, read_preset

    run_and_show(make_experiment({**read_preset("demo"), "seed": seed}), out or Path("runs/demo"), workers)


@app.command()
def bench(
    context: typer.Context,
    experiment: options.ExperimentFile = None,
    preset: options.Preset = None,
    dataset: options.Dataset = None,
    root: options.Root = None,
    shift: options.Shift = None,
    model: options.Model = None,
    clients: options.Clients = None,
    alpha: options.Alpha = None,
    rounds: options.Rounds = None,
    split: options.Split = None,
    method: options.Methods = None,
    seed: options.Seed = None,
    option: options.Settings = None,
    out: options.Out = None,
    workers: options.Workers = options.DEFAULT_WORKERS,
    device: options.Device = "cpu",
    min_share: options.MinShare = 0.5,
    smallest_cohort: options.SmallestCohort = 2,
    tensorboard: options.TensorBoard = False,
    start: options.From = None,
) -> None:
    """Train what the methods need, run them on the five streams of every client, and show the table.

    An experiment is read from a TOML file or a preset; options change single settings of it. A run that was
    interrupted goes on where it stopped. With `--from` nothing is trained: the experiment and the weights are those of
    an entry of the zoo (`btfl zoo list`) or of another run, and a file or options choose methods and streams.

    Examples:

    `btfl bench --preset quick`

    `btfl bench --from runs/quick --method btfl --method "btfl[prune_above=5]" --out runs/lambda`

    `btfl bench --dataset arrays --root mine.npz --model cnn --clients 10 --rounds 20`

    `btfl bench --preset demo --method btfl --method "btfl[count=after]" --method my_module:MyAdapter`
    """
    from btfl.cli.bench import run_and_show
    from btfl.cli.collect import collect
    from btfl.engines import FaultSettings, LocalEngine

    chosen = collect(context.params)
    engine, faults = LocalEngine(workers, device), FaultSettings(min_share, smallest_cohort=smallest_cohort)
    name = chosen.name if start is None else f"{chosen.name}-from-{Path(start.partition(':')[2] or start).name}"
    run_and_show(chosen, out or Path("runs") / name, workers, engine, faults, tensorboard=tensorboard, start=start)


@app.command()
def methods() -> None:
    """List the methods: where they come from, what they train, what they see, and their settings.

    Example: `btfl methods`
    """
    from btfl.cli.bench import show_methods

    show_methods()


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where the report is written.")
    ] = None,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart", help="Show runs of different datasets, splits or streams side by side, never averaged."
        ),
    ] = False,
) -> None:
    """Make a page with tables and figures from one or several runs.

    Runs that differ in the seed alone are averaged; other models or heterogeneities stand side by side; streams of
    another kind are refused unless you say `--apart`.

    Examples:

    `btfl report runs/demo`

    `btfl report runs/seed-0 runs/seed-1 runs/seed-2 --out report`
    """
    from rich.console import Console

    from btfl.cli.report import show_report

    show_report(runs, out or (runs[0] if len(runs) == 1 else Path("report")), Console(), apart=apart)


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A table or figure of the paper: table2, say.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name every table and figure of the paper and stop.")] = False,
    scale: Annotated[float, typer.Option(help="Share of the paper's rounds and images, above 0 and up to 1.")] = 1.0,
    dataset: Annotated[str | None, typer.Option(help="A dataset to take in place of the paper's.")] = None,
    root: options.Root = None,
    shift: options.Shift = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method; may be given several times.")] = None,
    out: options.Out = None,
    workers: options.Workers = options.DEFAULT_WORKERS,
) -> None:
    """Run what a table or figure of the paper was made from, at its size or smaller, and make the report.

    Whatever is not as in the paper, scale included, is said in the output and in the report.

    Examples:

    `btfl reproduce --list`

    `btfl reproduce table2 --scale 0.05 --dataset digits`
    """
    from btfl.cli.reproduce import reproduce_and_show, show_list

    if list_ or name is None:
        show_list()
    else:
        from btfl.experiments.reproduce import Substitution

        instead = Substitution(dataset, root, shift, tuple(method or ()))
        reproduce_and_show(name, scale, instead, out, workers)
