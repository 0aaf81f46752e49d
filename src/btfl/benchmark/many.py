"""One experiment or a sweep of them: each run in a folder of its own, which is that of the same run alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from btfl.benchmark.run import BenchRun, run_bench
from btfl.errors import InputError, listed
from btfl.experiments.experiment import Experiment
from btfl.experiments.sweep import NEEDS_NO_TRAINING, Sweep
from btfl.methods.registry import find_method
from btfl.report.extras import chosen
from btfl.runs.layout import RunFiles
from btfl.runs.saved import load_run

RUNS = Path("runs")
Run = Callable[..., BenchRun]


def default_folder(sweep: Sweep, start: str | None = None) -> Path:
    """Return where runs are kept if nobody says: ``runs/NAME``, and beside it for a sweep or other methods."""
    name = sweep.experiments[0].name
    if start is not None:
        name = f"{name}-from-{Path(start.partition(':')[2] or start).name}"
    return RUNS / (name if sweep.alone else f"{name}-sweep")


def check_sweep(
    sweep: Sweep, out: Path, *, start: str | None = None, reference: str | None = None, columns: tuple[str, ...] = ()
) -> None:
    """Find before any work is done what would be wrong only after it.

    Parameters
    ----------
    out : the folder of the runs
    start : where trained weights are taken from, as typed
    reference : the method to compare with all others
    columns : beside accuracy
    """
    chosen(columns)
    if start is not None:
        fixed = [place for place in sweep.axes if place not in NEEDS_NO_TRAINING]
        if fixed:
            raise InputError(
                f"the weights of {start} are of one training: {listed(fixed)} cannot take several values with them. "
                f"{listed(NEEDS_NO_TRAINING)} can; or train your own without --from"
            )
        if any(Path(start).resolve() == folder.resolve() for folder in (out, *sweep.folders(out))):
            raise InputError(f"a run from {start} needs another folder for its results: name one with --out")
    if not sweep.alone and RunFiles(out).record.exists():
        raise InputError(f"{out} is a single run: name another folder for several runs with --out")
    if reference is not None:
        known = [find_method(name).name for name in sweep.experiments[0].methods]
        known += [name for folder in sweep.folders(out) for name in _methods_there(folder)]
        if reference.strip() not in known and reference.strip().lower() not in known:
            raise InputError(
                f"the reference '{reference}' is not among the methods that are compared "
                f"({listed(dict.fromkeys(known), 30)}): add it to them, or take one of these"
            )


def run_sweep(
    sweep: Sweep,
    out: Path,
    *,
    run: Run = run_bench,
    begin: Callable[[int, Path], None] | None = None,
    **options: Any,
) -> list[Path]:
    """Run every experiment of a sweep, and return the folders of the runs.

    What was interrupted goes on where it stopped: what is trained already is not trained again.

    Parameters
    ----------
    out : the folder of the run, or that of the runs' folders
    run : does one; called with the experiment, its folder and the options
    begin : called with the number of a run, from 1, and its folder, before it is begun
    options : of ``run``
    """
    folders = sweep.folders(out)
    for number, (experiment, folder) in enumerate(zip(sweep.experiments, folders, strict=True), start=1):
        if begin is not None:
            begin(number, folder)
        _run_one(run, experiment, folder, options)
    return folders


def _run_one(run: Run, experiment: Experiment, folder: Path, options: dict[str, Any]) -> None:
    """Run one and let go of its images, before the next ones are loaded."""
    run(experiment, folder, **options)


def _methods_there(folder: Path) -> list[str]:
    if not RunFiles(folder).record.exists():
        return []
    return [str(name) for name in load_run(folder).rows["method"].unique()]
