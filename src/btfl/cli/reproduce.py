"""``btfl reproduce``: what a table or figure of the paper was made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from btfl.cli import completion, options, output

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.experiments.evidence import Evidence


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A table or figure of the paper, for example table2, or another experiment.",
            autocompletion=completion.reproductions,
        ),
    ] = None,
    list_: Annotated[
        bool,
        typer.Option("--list", help="List the tables and figures of the paper: what was run, and how far it agrees."),
    ] = False,
    scale: Annotated[float, typer.Option(help="Share of the paper's rounds and images, above 0 and up to 1.")] = 1.0,
    dataset: Annotated[
        str | None,
        typer.Option(help="Dataset to use in place of the paper's.", autocompletion=completion.datasets),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Where the dataset is, if not in the cache.")] = None,
    shift: Annotated[str | None, typer.Option(help="The other domain: a name, a file, or `none`.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method; may be repeated.", autocompletion=completion.methods),
    ] = None,
    out: options.Out = None,
    workers: options.Workers = options.DEFAULT_WORKERS,
    overwrite: options.Overwrite = False,
) -> None:
    """Make a table or figure of the paper again, at its size or smaller.

    Whatever is not as in the paper, scale included, is shown in the output and in the report.

    Examples:

    `btfl reproduce --list`

    `btfl reproduce table2 --scale 0.05 --dataset digits`
    """
    if list_ or name is None:
        _show_list()
        return
    from btfl.cli.running import run_with_progress
    from btfl.cli.show import show_report
    from btfl.experiments.files import read_experiment
    from btfl.experiments.reproduce import Substitution, plan
    from btfl.studies.speed.measure import measure_run

    console, found = output.console(), read_experiment(name)
    experiments = plan(found, scale, Substitution(dataset, root, shift, tuple(method or ())))
    folder = out or Path("runs") / (found.name if scale == 1 else f"{found.name}-scale-{scale:g}")
    for note in dict.fromkeys(note for experiment in experiments for note in experiment.notes):
        console.print(f"note: {note}", highlight=False, markup=False)
    folders = []
    for number, experiment in enumerate(experiments, start=1):
        run = folder / f"{experiment.name}-s{experiment.seed}"
        console.print(f"run {number} of {len(experiments)}: {run}", highlight=False, markup=False, soft_wrap=True)
        done = run_with_progress(experiment, run, workers, console, overwrite=overwrite)
        if found.speed:
            measure_run(done.evaluation, run)
        folders.append(run)
    # The same figure may stand on several datasets (lambda_s does): side by side then, never averaged.
    show_report(folders, folder, apart=True, title=f"{found.name}: {found.title}".rstrip(": "))


def _show_list() -> None:
    """Print what of the paper can be made again, what was run of it, at what scale, and how far it agrees."""
    from btfl.experiments.evidence import evidence
    from btfl.experiments.reproduce import reproductions

    known, found = evidence(), reproductions()

    def show(console: Console) -> None:
        from rich.padding import Padding

        for each in found:
            told = known[each.name]
            console.print(f"[bold]{each.name}[/bold]: {each.title}")
            for line in (f"[bold]{told.agreement}[/bold]: {told.verdict}", f"run: {told.scale}", *_numbers(told)):
                console.print(Padding(line, (0, 0, 0, 4), expand=False))
            console.print()
        console.print("Folders are in results/ of the repository. Smaller and without downloads:")
        console.print("btfl reproduce table2 --scale 0.05 --dataset digits")

    result = [
        {"name": each.name, "title": each.title, "runs": not each.drawing, **known[each.name].model_dump()}
        for each in found
    ]
    output.emit({"reproductions": result}, show, highlight=False)


def _numbers(told: Evidence) -> list[str]:
    """Write the numbers that an agreement stands on, a line for each folder and stream."""
    lines: dict[tuple[str, str, str, bool], list[str]] = {}
    for number in told.numbers:
        digits = 3 if number.measure == "mean_e" else 2
        theirs = "" if number.paper is None else f" / {number.paper:.{digits}f}"
        method = number.method.replace("[", "\\[")  # a bracket is no markup
        key = (number.folder, number.measure, number.stream, number.paper is not None)
        lines.setdefault(key, []).append(f"{method} {number.ours:.{digits}f}{theirs}")
    return [
        f"{folder}, {'mean e' if measure == 'mean_e' else 'accuracy'}, {stream.replace('_', ' ')}"
        f"{' (ours / paper)' if compared else ''}: {', '.join(values)}"
        for (folder, measure, stream, compared), values in lines.items()
    ]
