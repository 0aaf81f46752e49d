"""Running a benchmark in a terminal: progress while it works, the table when it is done."""

from __future__ import annotations

import inspect
from pathlib import Path

from rich.console import Console

from btfl.bench.run import BenchRun, run_bench
from btfl.cli.data import bring
from btfl.cli.progress import Watcher
from btfl.cli.report import show_report
from btfl.engines import FaultSettings
from btfl.engines.base import Engine
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment
from btfl.methods.registry import METHODS
from btfl.zoo.start import find_start


def run_and_show(
    experiment: Experiment,
    folder: Path,
    workers: int,
    engine: Engine | None = None,
    faults: FaultSettings | None = None,
    *,
    tensorboard: bool = False,
    start: str | None = None,
) -> BenchRun:
    """Run, with a progress bar; then print the table and where the report is."""
    console = Console()
    run = run_with_progress(experiment, folder, workers, console, engine, faults, tensorboard=tensorboard, start=start)
    show_report([folder], folder, console)
    return run


def run_with_progress(
    experiment: Experiment,
    folder: Path,
    workers: int,
    console: Console,
    engine: Engine | None = None,
    faults: FaultSettings | None = None,
    *,
    tensorboard: bool = False,
    start: str | None = None,
) -> BenchRun:
    """Run, with a progress bar; ``start`` is where trained weights are taken from, as typed."""
    if start is not None and Path(start).resolve() == folder.resolve():
        raise InputError(f"a run from {start} needs another folder for its results: name one with --out")
    if experiment.root is None:
        bring(experiment.dataset)
    with Watcher(console) as watcher:
        return run_bench(
            experiment,
            folder,
            workers=workers,
            engine=engine,
            watch=watcher,
            faults=faults,
            tensorboard=tensorboard,
            start=None if start is None else find_start(start),
        )


def show_methods() -> None:
    """List the registry."""
    console = Console(highlight=False)
    for method in METHODS.values():
        adapter = method.adapter_class()
        console.print(f"[bold]{method.name}[/bold]  {method.title}: {adapter.summary}")
        parameters = list(inspect.signature(adapter.__init__).parameters.values())[2:]
        settings = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        settings.update(method.settings)
        told = ", ".join(f"{key} = {value}" for key, value in settings.items()) or "none"
        console.print(
            f"    paper: {adapter.paper or 'none'}\n    trains: {method.trained_with}; sees: {adapter.takes}; "
            f"settings: {told}",
            markup=False,
        )
    console.print(
        "\nA method of your own: --method my_module:MyAdapter; change settings with name\\[setting=value,...]."
    )
