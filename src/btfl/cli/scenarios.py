"""``btfl scenarios``: methods on streams that change."""

from __future__ import annotations

from typing import Annotated

import typer

from btfl.cli import completion, options, output, study


def scenarios(
    run: options.Run,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method that sees features; may be repeated. Default: all.",
            autocompletion=completion.methods,
        ),
    ] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="A scenario; may be repeated. Default: all.")] = None,
    length: Annotated[int, typer.Option(min=2, help="Samples of a stream.")] = 4000,
    test_batch: Annotated[int, typer.Option(min=1, help="Samples a method sees at a time, for example 1.")] = 32,
    shifted: study.Shifted = False,
    seed: study.Seed = None,
    root: study.Root = None,
    out: study.Out = None,
) -> None:
    """Run methods on streams that switch, drift, burst, mix, or come class by class.

    Writes `scenarios.parquet` (a row for each client, method and scenario), `scenarios-means.parquet` and
    `scenarios.md`. docs/drift.md says what each scenario is.

    Examples:

    `btfl scenarios runs/quick`

    `btfl scenarios runs/quick --method coherent --method "coherent[forgetting=0.95]" --scenario switch-50`
    """
    import pandas as pd
    from rich.progress import track

    from btfl.benchmark.record import constants
    from btfl.runs.results import write_table
    from btfl.runs.saved import load_run
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

    console, folder = output.console(), out or run
    names = [find_scenario(name).name for name in dict.fromkeys(scenario or SCENARIOS)]
    evaluation, saved = open_run(run, tuple(dict.fromkeys(method or FEATURE_METHODS)), root), load_run(run)
    settings = ScenarioSettings(saved.seed if seed is None else seed, length, shifted, test_batch)
    parts = track(
        run_scenarios(evaluation, names, settings, constants(saved.record)),
        "running the scenarios",
        total=evaluation.seen,
        console=console,
        transient=True,
    )
    rows = pd.concat(list(parts), ignore_index=True)
    write_table(rows, folder / FILE)
    write_table(scenario_means(rows), folder / "scenarios-means.parquet")
    tables = scenario_tables(rows, {name: one.family for name, one in SCENARIOS.items()})
    difference = difference_table(rows)
    every = [*tables, *([difference] if difference else [])]
    study.show_tables(every, folder / "scenarios.md", folder / FILE, "Every number")
