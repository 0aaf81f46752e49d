"""``btfl`` and its commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from btfl import __version__
from btfl.cli import data

app = typer.Typer(
    name="btfl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Bayesian test-time generalisation for federated learning: train, benchmark, report.\n\n"
    "Start with `btfl demo`; it needs no download.",
)
app.add_typer(data.app, name="data")

Workers = Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes to train and evaluate with.")]
Out = Annotated[Optional[Path], typer.Option("--out", "-o", metavar="FOLDER", help="Where the run is kept.")]  # noqa: UP045
DEFAULT_WORKERS = min(os.cpu_count() or 1, 8)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Say the version and stop.")] = False) -> None:
    if version:
        typer.echo(f"btfl {__version__}")
        raise typer.Exit


@app.command()
def demo(out: Out = Path("runs/demo"), workers: Workers = DEFAULT_WORKERS, seed: int = 0) -> None:
    """Train a small federation on handwritten digits and compare the methods on its five streams.

    Nothing is downloaded; it takes about half a minute and ends with a table and a report.

    Example: `btfl demo --workers 2`
    """
    from btfl.bench.experiment import make_experiment, read_preset
    from btfl.cli.bench import run_and_show

    run_and_show(make_experiment({**read_preset("demo"), "seed": seed}), out or Path("runs/demo"), workers)


@app.command()
def bench(
    experiment: Annotated[
        Optional[Path], typer.Argument(metavar="[EXPERIMENT.toml]", help="An experiment written down as TOML.")  # noqa: UP045
    ] = None,
    preset: Annotated[Optional[str], typer.Option(help="An experiment that comes with btfl: demo, quick, ...")] = None,  # noqa: UP045
    dataset: Annotated[Optional[str], typer.Option(help="The dataset; see `btfl data list`.")] = None,  # noqa: UP045
    root: Annotated[Optional[Path], typer.Option(help="Where the dataset is, if not in the cache.")] = None,  # noqa: UP045
    shift: Annotated[Optional[str], typer.Option(help="The other domain: a name, a file, or `none`.")] = None,  # noqa: UP045
    model: Annotated[Optional[str], typer.Option(help="cnn, resnet20, cct4, mlp, or your own `module:Factory`.")] = None,  # noqa: UP045
    clients: Annotated[Optional[int], typer.Option(help="How many clients.")] = None,  # noqa: UP045
    alpha: Annotated[Optional[float], typer.Option(help="Dirichlet parameter: the smaller, the more clients differ.")] = None,  # noqa: UP045
    rounds: Annotated[Optional[int], typer.Option(help="Rounds of training.")] = None,  # noqa: UP045
    split: Annotated[Optional[str], typer.Option(help="honest, or redrawn (the published, leaking procedure).")] = None,  # noqa: UP045
    method: Annotated[Optional[list[str]], typer.Option(help="A method to compare; may be given several times.")] = None,  # noqa: UP045
    seed: Annotated[Optional[int], typer.Option(help="What every random choice follows from.")] = None,  # noqa: UP045
    option: Annotated[
        Optional[list[str]], typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, `training.batch=64` say.")  # noqa: UP045
    ] = None,
    out: Out = None,
    workers: Workers = DEFAULT_WORKERS,
) -> None:
    """Train what the methods need, run them on the five streams of every client, and show the table.

    An experiment is read from a TOML file or a preset; options change single settings of it. A run that was
    interrupted goes on where it stopped.

    Examples:

    `btfl bench --preset quick`

    `btfl bench --dataset arrays --root mine.npz --model cnn --clients 10 --rounds 20`

    `btfl bench --preset demo --method btfl --method "btfl[count=after]" --method my_module:MyAdapter`
    """
    from btfl.cli.bench import collect, run_and_show

    given: dict[str, Any] = {
        "dataset": dataset,
        "root": root,
        "shift": shift,
        "model": model,
        "clients": clients,
        "alpha": alpha,
        "split": split,
        "methods": tuple(method) if method else None,
        "seed": seed,
        "training.rounds": rounds,
    }
    chosen = collect(experiment, preset, {k: v for k, v in given.items() if v is not None}, option or [])
    run_and_show(chosen, out or Path("runs") / chosen.name, workers)


@app.command()
def methods() -> None:
    """List the methods: where they come from, what they train, what they see, and their settings.

    Example: `btfl methods`
    """
    from btfl.cli.bench import show_methods

    show_methods()
