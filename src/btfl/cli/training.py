"""Training in a terminal: progress while it works, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from btfl.bench.run import train_recipe
from btfl.cli.data import bring
from btfl.cli.progress import Watcher
from btfl.engines import FaultSettings
from btfl.engines.base import Engine
from btfl.engines.log import need_tensorboard
from btfl.errors import BtflError, UnknownNameError
from btfl.experiments.experiment import Experiment
from btfl.experiments.load import load_data
from btfl.recipes.registry import RECIPES
from btfl.runs.checkpoint import RunFolder
from btfl.runs.layout import RunFiles
from btfl.runs.trained import TrainedFederation


def train_and_show(
    experiment: Experiment,
    recipes: Sequence[str],
    folder: Path,
    engine: Engine,
    faults: FaultSettings,
    *,
    tensorboard: bool = False,
) -> None:
    """Train the recipes one after the other, with progress bars; say what each came to."""
    for name in recipes:
        if name not in RECIPES:
            raise UnknownNameError("recipe", name, RECIPES)
    if tensorboard:
        need_tensorboard()
    if experiment.root is None:
        bring(experiment.dataset)
    data, console = load_data(experiment), Console(highlight=False, soft_wrap=True)
    for name in recipes:
        try:
            with Watcher(console) as watcher:
                federation = train_recipe(
                    name, experiment, data, engine, folder, watch=watcher, faults=faults, tensorboard=tensorboard
                )
        except KeyboardInterrupt:
            console.print("Stopped. What is finished is kept: give the same command again to go on from there.")
            raise
        _show(name, federation, RunFiles(folder).training(name).folder, console)


def _show(name: str, federation: TrainedFederation, folder: Path, console: Console) -> None:
    if missing := [number for number, outcome in enumerate(federation.outcomes) if outcome is None]:
        raise BtflError(
            f"{name} is trained, but clients could not finish and have no bundle: {', '.join(map(str, missing))}. "
            "What there is has been kept: start the run again to give them another chance"
        )
    metrics, rounds = RunFolder(folder).last_metrics(), federation.spec["settings"]["rounds"]
    numbers = [
        form.format(metrics[key])
        for key, form in (("loss", "loss {:.4f}"), ("accuracy", "accuracy {:.1%}"))
        if key in metrics
    ]
    console.print(f"{name}: {', '.join([f'{rounds} rounds', *numbers])}", markup=False)
    console.print(f"  sha256 {federation.digest()}\n  folder {folder}", markup=False)
