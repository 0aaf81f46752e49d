"""``btfl flower``: the same experiments on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import options

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Train on Flower: in its simulation, or as an app to deploy.",
)


@app.command()
def simulate(
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
    min_share: options.MinShare = 0.5,
    smallest_cohort: options.SmallestCohort = 2,
    time_limit: options.TimeLimit = 600.0,
    tensorboard: options.TensorBoard = False,
    out: options.Out = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="Ray actors to train with, and processes to evaluate with.")
    ] = options.DEFAULT_WORKERS,
) -> None:
    """Do what `btfl bench` does, with the clients in Flower's simulation: same experiment, same weights, same table.

    Example: `btfl flower simulate --preset demo --rounds 3`
    """
    from btfl.flower import need_flower

    need_flower()
    from btfl.cli.bench import run_and_show
    from btfl.cli.collect import collect
    from btfl.engines.faults import FaultSettings
    from btfl.flower.simulation import FlowerSimulation

    chosen = collect(context.params)
    folder, faults = (
        out or Path("runs") / f"{chosen.name}-flower",
        FaultSettings(min_share, time_limit, smallest_cohort=smallest_cohort),
    )
    engine = FlowerSimulation(chosen, folder / "flower", workers, faults)
    run_and_show(chosen, folder, workers, engine, faults, tensorboard=tensorboard)


@app.command()
def new(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder to make; its name is the app's.")],
    experiment: options.ExperimentFile = None,
    preset: options.Preset = None,
    recipe: Annotated[str, typer.Option(help="What is trained: fedavg, balanced, fedrep, ...")] = "fedavg",
    clients: options.Clients = None,
    rounds: options.Rounds = None,
    seed: options.Seed = None,
    option: options.Settings = None,
    min_share: options.MinShare = 0.5,
    smallest_cohort: options.SmallestCohort = 2,
    time_limit: options.TimeLimit = 600.0,
) -> None:
    """Write a Flower app that trains an experiment: for `flwr run`, in simulation or on SuperNodes.

    Example: `btfl flower new digits-app --preset demo --clients 2 --rounds 3`
    """
    from btfl.cli.collect import collect
    from btfl.engines.faults import FaultSettings
    from btfl.flower.scaffold import write_app
    from btfl.flower.task import FlowerTask

    chosen = collect(context.params)
    task = FlowerTask.of(
        chosen, recipe, f"{folder.name}-run", FaultSettings(min_share, time_limit, smallest_cohort=smallest_cohort)
    )
    for path in write_app(folder, task):
        typer.echo(path)
    typer.echo(f"Start it with `flwr run {folder}` once a SuperLink and its SuperNodes run; see docs/flower.md.")
