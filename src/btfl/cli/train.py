"""``btfl train``: a federation without the benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import options


def train(
    context: typer.Context,
    experiment: options.ExperimentFile = None,
    preset: options.Preset = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help="What is trained: fedavg (if you say nothing), balanced, fedrep, ttt, ttt-release; may be repeated."
        ),
    ] = None,
    dataset: options.Dataset = None,
    root: options.Root = None,
    shift: options.Shift = None,
    model: options.Model = None,
    clients: options.Clients = None,
    alpha: options.Alpha = None,
    rounds: options.Rounds = None,
    split: options.Split = None,
    seed: options.Seed = None,
    option: options.Settings = None,
    out: options.Out = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes to train with.")] = (
        options.DEFAULT_WORKERS
    ),
    device: options.Device = "cpu",
    min_share: options.MinShare = 0.5,
    smallest_cohort: options.SmallestCohort = 2,
    tensorboard: options.TensorBoard = False,
) -> None:
    """Train a federation and leave out the benchmark; `btfl bench` on the same folder then only evaluates.

    A run that was interrupted goes on where it stopped, whatever stopped it: give the same words again. What happens
    is written to `log.jsonl` beside the weights, a line of JSON for each round.

    Examples:

    `btfl train --preset demo`

    `btfl train --preset quick --recipe fedavg --recipe balanced --out runs/mine --tensorboard`
    """
    from btfl.cli.collect import collect
    from btfl.cli.training import train_and_show
    from btfl.engines import FaultSettings, LocalEngine

    chosen = collect(context.params)
    engine, faults = LocalEngine(workers, device), FaultSettings(min_share, smallest_cohort=smallest_cohort)
    folder, recipes = out or Path("runs") / chosen.name, dict.fromkeys(recipe or ["fedavg"])
    train_and_show(chosen, list(recipes), folder, engine, faults, tensorboard=tensorboard)
