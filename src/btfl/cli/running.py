"""Running an experiment in a terminal: progress while it works, the report when it is done."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from btfl.benchmark.many import check_sweep, default_folder, run_sweep
from btfl.benchmark.run import BenchRun, run_bench
from btfl.cli import output
from btfl.cli.data import get_if_missing
from btfl.cli.progress import Watcher
from btfl.cli.show import show_report
from btfl.engines import FaultSettings
from btfl.engines.base import Engine
from btfl.experiments.experiment import Experiment
from btfl.experiments.sweep import Sweep
from btfl.zoo.start import find_start


def run_and_show(
    sweep: Sweep,
    out: Path | None,
    workers: int,
    engine: Engine | None = None,
    faults: FaultSettings | None = None,
    *,
    tensorboard: bool = False,
    mlflow: str | None = None,
    start: str | None = None,
    overwrite: bool = False,
    reference: str | None = None,
    columns: tuple[str, ...] = (),
) -> None:
    """Run an experiment or several with a progress bar; then print the tables and where the report is.

    Parameters
    ----------
    out : the folder of the run, or of the runs' folders; None: one that follows from the experiment
    start : where trained weights are taken from, as typed after ``--from``
    overwrite : whether results of another experiment in the folder are replaced
    reference : the method to compare with all others
    columns : beside accuracy
    """
    out, console = out or default_folder(sweep, start), output.console()
    check_sweep(sweep, out, start=start, reference=reference, columns=columns)

    def begin(number: int, folder: Path) -> None:
        if not sweep.alone:
            said = f"run {number} of {len(sweep.experiments)}: {folder}"
            console.print(said, highlight=False, markup=False, soft_wrap=True)

    folders = run_sweep(
        sweep,
        out,
        run=partial(run_with_progress, workers=workers, console=console),
        begin=begin,
        engine=engine,
        faults=faults,
        tensorboard=tensorboard,
        mlflow=mlflow,
        start=None if start is None else find_start(start),
        overwrite=overwrite,
    )
    show_report(folders, out, apart=not sweep.alone, reference=reference, columns=columns)


def run_with_progress(experiment: Experiment, folder: Path, workers: int, console: Console, **options: Any) -> BenchRun:
    """Run an experiment with a progress bar; ``options`` are those of ``run_bench``."""
    if experiment.root is None:
        get_if_missing(experiment.dataset)
    with Watcher(console) as watcher:
        return run_bench(experiment, folder, workers=workers, watch=watcher, **options)
