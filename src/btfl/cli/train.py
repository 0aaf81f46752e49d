"""``btfl train``: a federation without the benchmark."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from btfl.cli import completion, options, output

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.runs.trained import TrainedFederation


def train(
    context: typer.Context,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help="Recipe to train, fedavg if none is given; may be repeated.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    out: options.Out = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes to train with.")] = (
        options.DEFAULT_WORKERS
    ),
    device: options.Device = "cpu",
    tensorboard: options.TensorBoard = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Train a federation without the benchmark.

    `btfl bench` on the same folder then only evaluates. A run that was interrupted continues where it stopped, whatever
    stopped it: give the same command again. What happens is written to `log.jsonl` beside the weights, a line of JSON
    for each round.

    Examples:

    `btfl train demo`

    `btfl train quick --recipe fedavg --recipe balanced --out runs/mine --tensorboard`
    """
    from btfl.benchmark.run import embed, train_recipe
    from btfl.cli.collect import collect, collect_faults
    from btfl.cli.data import get_if_missing
    from btfl.cli.progress import Watcher
    from btfl.engines import LocalEngine
    from btfl.engines.log import need_tensorboard
    from btfl.engines.mlflow_log import need_mlflow
    from btfl.errors import UnknownNameError
    from btfl.experiments.load import load_data
    from btfl.recipes.registry import RECIPES
    from btfl.runs.layout import RunFiles

    experiment, faults, engine = collect(context.obj), collect_faults(context.obj), LocalEngine(workers, device)
    recipes, folder = list(dict.fromkeys(recipe or ["fedavg"])), out or Path("runs") / experiment.name
    for name in recipes:
        if name not in RECIPES:
            raise UnknownNameError("recipe", name, RECIPES)
    if tensorboard:
        need_tensorboard()
    if mlflow is not None:
        need_mlflow()
    if experiment.root is None:
        get_if_missing(experiment.dataset)
    data, console = load_data(experiment), output.console(highlight=False, soft_wrap=True)
    with Watcher(console) as watcher:
        data, _ = embed(experiment, data, workers, watcher)
    trained: list[dict[str, Any]] = []
    for name in recipes:
        with Watcher(console) as watcher:
            federation = train_recipe(
                name, experiment, data, engine, folder, watch=watcher, faults=faults, tensorboard=tensorboard,
                mlflow=mlflow,
            )  # fmt: skip
        trained.append(_came_to(name, federation, RunFiles(folder).training(name).folder))
    output.emit({"trained": trained}, partial(_show, trained), highlight=False, soft_wrap=True)


def _came_to(name: str, federation: TrainedFederation, folder: Path) -> dict[str, Any]:
    """Return what training came to; clients without a bundle are an error."""
    from btfl.errors import BtflError
    from btfl.runs.checkpoint import RunFolder

    if missing := [number for number, outcome in enumerate(federation.outcomes) if outcome is None]:
        raise BtflError(
            f"{name} is trained, but clients could not finish and have no bundle: {', '.join(map(str, missing))}. "
            "What there is has been kept: start the run again to give them another chance"
        )
    metrics, rounds = RunFolder(folder).last_metrics(), federation.spec["settings"]["rounds"]
    return {"recipe": name, "rounds": rounds, **metrics, "sha256": federation.digest(), "folder": folder}


def _show(trained: list[dict[str, Any]], console: Console) -> None:
    for one in trained:
        numbers = [
            form.format(one[key])
            for key, form in (("rounds", "{} rounds"), ("loss", "loss {:.4f}"), ("accuracy", "accuracy {:.1%}"))
            if key in one
        ]
        console.print(f"{one['recipe']}: {', '.join(numbers)}", markup=False)
        console.print(f"  sha256 {one['sha256']}\n  folder {one['folder']}", markup=False)
