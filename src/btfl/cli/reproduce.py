"""Reproducing a table or figure in a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from btfl.cli.bench import run_with_progress
from btfl.cli.report import show_report
from btfl.experiments.reproduce import Substitution, plan, read_reproduction, reproduction_names
from btfl.studies.speed.measure import measure_run


def show_list() -> None:
    """Name every table and figure of the paper."""
    console = Console(highlight=False, soft_wrap=True)
    for name in reproduction_names():
        found = read_reproduction(name)
        ending = " (a drawing: nothing to run)" if found.drawing else ""
        console.print(f"[bold]{name:<8}[/bold] {found.title}{ending}")
    console.print("\nSmaller and without downloads: btfl reproduce table2 --scale 0.05 --dataset digits")


def reproduce_and_show(name: str, scale: float, instead: Substitution, out: Path | None, workers: int) -> None:
    """Do every run that a table or figure needs, and make one report of them."""
    console = Console()
    found = read_reproduction(name)
    experiments = plan(found, scale, instead)
    folder = out or Path("runs") / (name if scale == 1 else f"{name}-scale-{scale:g}")
    for note in dict.fromkeys(note for experiment in experiments for note in experiment.notes):
        console.print(f"note: {note}", highlight=False, markup=False)
    folders = []
    for number, experiment in enumerate(experiments, start=1):
        run = folder / f"{experiment.name}-s{experiment.seed}"
        console.print(f"run {number} of {len(experiments)}: {run}", highlight=False, markup=False, soft_wrap=True)
        done = run_with_progress(experiment, run, workers, console)
        if found.speed:
            measure_run(done.evaluation, run)
        folders.append(run)
    # The same figure may stand on several datasets (lambda_s does): side by side then, never averaged.
    show_report(folders, folder, console, apart=True, title=f"{found.name}: {found.title}")
