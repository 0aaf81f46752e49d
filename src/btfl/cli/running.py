"""Running an experiment in a terminal: progress while it works, the report when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from btfl.benchmark.run import BenchRun, run_bench
from btfl.cli.data import get_if_missing
from btfl.cli.progress import Watcher
from btfl.cli.show import show_report
from btfl.engines import FaultSettings
from btfl.engines.base import Engine
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment
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
    overwrite: bool = False,
) -> None:
    """Run an experiment with a progress bar; then print the table and where the report is.

    Parameters
    ----------
    start : where trained weights are taken from, as typed after ``--from``
    overwrite : whether results of another experiment in the folder are replaced
    """
    if start is not None and Path(start).resolve() == folder.resolve():
        raise InputError(f"a run from {start} needs another folder for its results: name one with --out")
    found, console = None if start is None else find_start(start), Console()
    run_with_progress(
        experiment,
        folder,
        workers,
        console,
        engine=engine,
        faults=faults,
        tensorboard=tensorboard,
        start=found,
        overwrite=overwrite,
    )
    show_report([folder], folder, console)


def run_with_progress(experiment: Experiment, folder: Path, workers: int, console: Console, **options: Any) -> BenchRun:
    """Run an experiment with a progress bar; ``options`` are those of ``run_bench``."""
    if experiment.root is None:
        get_if_missing(experiment.dataset)
    with Watcher(console) as watcher:
        return run_bench(experiment, folder, workers=workers, watch=watcher, **options)
