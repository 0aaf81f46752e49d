"""``btfl flower``: the same experiments on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import completion, options, output
from btfl.cli.command import Commands, FlowerCommand

app = Commands(help="Train on Flower: in its simulation, or as an app to deploy.")


@app.command(cls=FlowerCommand)
def simulate(
    context: typer.Context,
    out: options.Out = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="Ray actors to train with, and processes to evaluate with.")
    ] = options.DEFAULT_WORKERS,
    tensorboard: options.TensorBoard = False,
    mlflow: options.Mlflow = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Do what `btfl bench` does, with the clients in Flower's simulation: same weights, same table.

    Example: `btfl flower simulate demo --rounds 3`
    """
    from btfl.flower import need_flower

    need_flower()
    from btfl.cli.collect import collect, collect_faults
    from btfl.cli.running import run_and_show
    from btfl.experiments.sweep import Sweep
    from btfl.flower.simulation import FlowerSimulation

    chosen, faults = collect(context.obj), collect_faults(context.obj)
    folder = out or Path("runs") / f"{chosen.name}-flower"
    engine = FlowerSimulation(chosen, folder / "flower", workers, faults)
    sweep = Sweep.of(chosen)
    run_and_show(sweep, folder, workers, engine, faults, tensorboard=tensorboard, mlflow=mlflow, overwrite=overwrite)


@app.command(cls=FlowerCommand)
def new(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder to make; its name is the app's.")],
    recipe: Annotated[str, typer.Option(help="Recipe to train.", autocompletion=completion.recipes)] = "fedavg",
) -> None:
    """Write a Flower app that trains an experiment: for `flwr run`, in simulation or on SuperNodes.

    Example: `btfl flower new digits-app demo --clients 2 --rounds 3`
    """
    from btfl.cli.collect import collect, collect_faults
    from btfl.flower.scaffold import write_app
    from btfl.flower.task import FlowerTask

    chosen, faults = collect(context.obj), collect_faults(context.obj)
    paths = list(write_app(folder, FlowerTask.of(chosen, recipe, f"{folder.name}-run", faults)))
    output.emit_lines({"app": folder, "files": paths}, *paths)
    output.say(f"Start it with `flwr run {folder}` once a SuperLink and its SuperNodes run; see docs/flower.md.")
