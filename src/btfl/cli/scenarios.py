"""``btfl scenarios`` and ``btfl drift``: streams that change, and who notices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run of `btfl bench`.")]
Shifted = Annotated[bool, typer.Option("--shifted", help="Pick from the shifted streams B and D too.")]
Seed = Annotated[int | None, typer.Option(help="What the draws follow from. Default: the run's own seed.")]
Root = Annotated[Path | None, typer.Option(help="Where the dataset is, if not where the run found it.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Default: the run's own folder.")]


def scenarios(
    run: Run,
    method: Annotated[list[str] | None, typer.Option(help="A method that sees features; may be repeated.")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="A scenario; may be repeated. Default: all.")] = None,
    length: Annotated[int, typer.Option(min=2, help="Samples of a stream.")] = 4000,
    test_batch: Annotated[int, typer.Option(min=1, help="Samples a method sees at a time; 32 or 1, say.")] = 32,
    shifted: Shifted = False,
    seed: Seed = None,
    root: Root = None,
    out: Out = None,
) -> None:
    """Run methods on streams that switch, drift, burst, mix, or come class by class.

    Writes `scenarios.parquet` (a row for each client, method and scenario), `scenarios-means.parquet` and
    `scenarios.md`. docs/drift.md says what each scenario is.

    Examples:

    `btfl scenarios runs/quick`

    `btfl scenarios runs/quick --method coherent --method "coherent[forgetting=0.95]" --scenario switch-50`
    """
    import pandas as pd
    from rich.console import Console
    from rich.progress import track

    from btfl.bench.record import constants
    from btfl.report.formats import to_markdown
    from btfl.report.terminal import terminal_table
    from btfl.runs.results import write_table
    from btfl.runs.saved import load_run
    from btfl.storage import write_atomically
    from btfl.studies.drift.scenarios import (
        FEATURE_METHODS,
        FILE,
        SCENARIOS,
        ScenarioSettings,
        find_scenario,
        open_run,
        run_scenarios,
    )
    from btfl.studies.drift.tables import difference_table, scenario_means, scenario_tables

    console, folder = Console(), out or run
    names = [find_scenario(name).name for name in dict.fromkeys(scenario or SCENARIOS)]
    evaluation, saved = open_run(run, tuple(dict.fromkeys(method or FEATURE_METHODS)), root), load_run(run)
    settings = ScenarioSettings(saved.seed if seed is None else seed, length, shifted, test_batch)
    parts = track(
        run_scenarios(evaluation, names, settings, constants(saved.record)),
        "running the scenarios",
        total=len(evaluation.manifest.clients),
        console=console,
        transient=True,
    )
    rows = pd.concat(list(parts), ignore_index=True)
    write_table(rows, folder / FILE)
    write_table(scenario_means(rows), folder / "scenarios-means.parquet")
    tables = scenario_tables(rows, {name: one.family for name, one in SCENARIOS.items()})
    difference = difference_table(rows)
    tables += [difference] if difference else []
    write_atomically(folder / "scenarios.md", "\n".join(map(to_markdown, tables)).encode())
    for table in tables:
        console.print(terminal_table(table))
    for note in tables[0].notes:
        console.print(note, highlight=False, markup=False)
    console.print(f"Every number: {folder / FILE}", highlight=False, markup=False, soft_wrap=True)


def drift(
    run: Run,
    detector: Annotated[list[str] | None, typer.Option(help="A detector; may be repeated. Default: all.")] = None,
    before: Annotated[int, typer.Option(min=1, help="Internal samples before the drift.")] = 500,
    after: Annotated[int, typer.Option(min=1, help="External samples after it.")] = 500,
    draws: Annotated[int, typer.Option(min=1, help="Streams of each kind for each client.")] = 10,
    warm_up: Annotated[int, typer.Option(min=0, help="Samples at the beginning when no alarm counts.")] = 100,
    shifted: Shifted = False,
    seed: Seed = None,
    root: Root = None,
    out: Out = None,
) -> None:
    """Compare P(EXD) as a drift detector with well-known ones: delay and false alarms.

    Writes `drift.parquet` (a row for each detector and threshold), `drift.md`, `drift.png` and `drift.svg`. ADWIN,
    KSWIN and Page-Hinkley are river's: `pip install 'btfl[drift]'`. docs/drift.md says how detection is judged.

    Examples:

    `btfl drift runs/quick`

    `btfl drift runs/quick --detector regime --detector cusum --detector adwin-evidence`
    """
    from rich.console import Console
    from rich.progress import track

    from btfl.report.formats import to_markdown
    from btfl.report.terminal import terminal_table
    from btfl.runs.results import write_table
    from btfl.runs.saved import load_run
    from btfl.storage import write_atomically
    from btfl.studies.drift.detectors import choose, has_river
    from btfl.studies.drift.protocol import FILE, Protocol, detect
    from btfl.studies.drift.scenarios import make_base, open_run
    from btfl.studies.drift.tables import RATES, drift_drawing, drift_table

    console, folder, chosen = Console(), out or run, choose(detector)
    if not detector and not has_river():
        console.print("note: ADWIN, KSWIN and Page-Hinkley are left out: pip install 'btfl[drift]'", markup=False)
    protocol = Protocol(before, after, draws, warm_up, load_run(run).seed if seed is None else seed, shifted)
    evaluation = open_run(run, ("coherent",), root)
    clients = track(range(len(evaluation.manifest.clients)), "watching the streams", console=console, transient=True)
    curves = detect((make_base(evaluation, number) for number in clients), chosen, protocol)
    write_table(curves, folder / FILE)
    tables = [drift_table(curves, rate, after) for rate in RATES]
    write_atomically(folder / "drift.md", "\n".join(map(to_markdown, tables)).encode())
    drawing = drift_drawing(curves, after)
    write_atomically(folder / "drift.png", drawing.png)
    write_atomically(folder / "drift.svg", drawing.svg)
    for table in tables:
        console.print(terminal_table(table))
    for note in tables[0].notes:
        console.print(note, highlight=False, markup=False)
    console.print(f"Every threshold: {folder / FILE}", highlight=False, markup=False, soft_wrap=True)
