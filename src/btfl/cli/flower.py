"""``btfl flower``: the same experiments on Flower."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Train on Flower: in its simulation, or as an app to deploy.",
)

DEFAULT_WORKERS = min(os.cpu_count() or 1, 8)

# typer reads these at run time, where `Path | None` is not yet understood by every version we allow
File = Annotated[Optional[Path], typer.Argument(metavar="[EXPERIMENT.toml]", help="An experiment as TOML.")]  # noqa: UP045
Preset = Annotated[Optional[str], typer.Option(help="An experiment that comes with btfl, `demo` say.")]  # noqa: UP045
Set = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, `training.batch=64` say."),
]
Clients = Annotated[Optional[int], typer.Option(help="How many clients.")]  # noqa: UP045
Rounds = Annotated[Optional[int], typer.Option(help="Rounds of training.")]  # noqa: UP045
Seed = Annotated[Optional[int], typer.Option(help="What every random choice follows from.")]  # noqa: UP045
Share = Annotated[float, typer.Option(help="Stop if fewer than this share of the clients asked can answer.")]
Limit = Annotated[float, typer.Option(help="Seconds a client has for an answer.")]


@app.command()
def simulate(
    experiment: File = None,
    preset: Preset = None,
    dataset: Annotated[Optional[str], typer.Option(help="The dataset; see `btfl data list`.")] = None,  # noqa: UP045
    root: Annotated[Optional[Path], typer.Option(help="Where the dataset is, if not in the cache.")] = None,  # noqa: UP045
    model: Annotated[Optional[str], typer.Option(help="cnn, resnet20, cct4, mlp, or your own.")] = None,  # noqa: UP045
    clients: Clients = None,
    alpha: Annotated[Optional[float], typer.Option(help="Dirichlet parameter.")] = None,  # noqa: UP045
    rounds: Rounds = None,
    method: Annotated[Optional[list[str]], typer.Option(help="A method to compare; may be repeated.")] = None,  # noqa: UP045
    seed: Seed = None,
    option: Set = None,
    min_share: Share = 0.5,
    time_limit: Limit = 600.0,
    out: Annotated[Optional[Path], typer.Option("--out", "-o", metavar="FOLDER", help="Where the run is kept.")] = None,  # noqa: UP045
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="Ray actors to train with, and processes to evaluate with.")
    ] = DEFAULT_WORKERS,
) -> None:
    """Do what `btfl bench` does, with the clients in Flower's simulation: same experiment, same weights, same table.

    Example: `btfl flower simulate --preset demo --rounds 3`
    """
    from btfl.flower import need_flower

    need_flower()
    from btfl.cli.bench import collect, run_and_show
    from btfl.engines.faults import FaultSettings
    from btfl.flower.simulation import FlowerSimulation

    given: dict[str, Any] = {
        "dataset": dataset,
        "root": root,
        "model": model,
        "clients": clients,
        "alpha": alpha,
        "methods": tuple(method) if method else None,
        "seed": seed,
        "training.rounds": rounds,
    }
    chosen = collect(experiment, preset, {k: v for k, v in given.items() if v is not None}, option or [])
    folder, faults = out or Path("runs") / f"{chosen.name}-flower", FaultSettings(min_share, time_limit)
    engine = FlowerSimulation(chosen, folder / "flower", workers, faults)
    run_and_show(chosen, folder, workers, engine, faults)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder to make; its name is the app's.")],
    experiment: File = None,
    preset: Preset = None,
    recipe: Annotated[str, typer.Option(help="What is trained: fedavg, balanced, fedrep, ...")] = "fedavg",
    clients: Clients = None,
    rounds: Rounds = None,
    seed: Seed = None,
    option: Set = None,
    min_share: Share = 0.5,
    time_limit: Limit = 600.0,
) -> None:
    """Write a Flower app that trains an experiment: for `flwr run`, in simulation or on SuperNodes.

    Example: `btfl flower new digits-app --preset demo --clients 2 --rounds 3`
    """
    from btfl.cli.bench import collect
    from btfl.engines.faults import FaultSettings
    from btfl.flower.scaffold import write_app
    from btfl.flower.task import FlowerTask

    given = {"clients": clients, "seed": seed, "training.rounds": rounds}
    chosen = collect(experiment, preset, {k: v for k, v in given.items() if v is not None}, option or [])
    task = FlowerTask.of(chosen, recipe, f"{folder.name}-run", FaultSettings(min_share, time_limit))
    for path in write_app(folder, task):
        typer.echo(path)
    typer.echo(f"Start it with `flwr run {folder}` once a SuperLink and its SuperNodes run; see docs/flower.md.")
