"""``btfl drift``: who notices that a stream has turned external."""

from __future__ import annotations

from typing import Annotated

import typer

from btfl.cli import options, output, study


def drift(
    run: options.Run,
    detector: Annotated[list[str] | None, typer.Option(help="A detector; may be repeated. Default: all.")] = None,
    before: Annotated[int, typer.Option(min=1, help="Internal samples before the drift.")] = 500,
    after: Annotated[int, typer.Option(min=1, help="External samples after it.")] = 500,
    draws: Annotated[int, typer.Option(min=1, help="Streams of each kind for each client.")] = 10,
    warm_up: Annotated[int, typer.Option(min=0, help="Samples at the beginning when no alarm counts.")] = 100,
    shifted: study.Shifted = False,
    seed: study.Seed = None,
    root: study.Root = None,
    out: study.Out = None,
) -> None:
    """Compare P(EXD) as a drift detector with well-known ones: delay and false alarms.

    Writes `drift.parquet` (a row for each detector and threshold), `drift.md`, `drift.png` and `drift.svg`. ADWIN,
    KSWIN and Page-Hinkley are river's: `pip install 'btfl[drift]'`. docs/drift.md says how detection is judged.

    Examples:

    `btfl drift runs/quick`

    `btfl drift runs/quick --detector regime --detector cusum --detector adwin-evidence`
    """
    from rich.progress import track

    from btfl.runs.results import write_table
    from btfl.runs.saved import load_run
    from btfl.storage import write_atomically
    from btfl.studies.drift.detectors import choose, has_river
    from btfl.studies.drift.protocol import FILE, Protocol, detect
    from btfl.studies.drift.scenarios import make_base, open_run
    from btfl.studies.drift.tables import RATES, drift_drawing, drift_table

    console, folder, chosen = output.console(), out or run, choose(detector)
    if not detector and not has_river():
        console.print("note: ADWIN, KSWIN and Page-Hinkley are left out: pip install 'btfl[drift]'", markup=False)
    protocol = Protocol(before, after, draws, warm_up, load_run(run).seed if seed is None else seed, shifted)
    evaluation = open_run(run, ("coherent",), root)
    clients = track(range(evaluation.seen), "watching the streams", console=console, transient=True)
    curves = detect((make_base(evaluation, number) for number in clients), chosen, protocol)
    write_table(curves, folder / FILE)
    drawing = drift_drawing(curves, after)
    write_atomically(folder / "drift.png", drawing.png)
    write_atomically(folder / "drift.svg", drawing.svg)
    tables = [drift_table(curves, rate, after) for rate in RATES]
    study.show_tables(tables, folder / "drift.md", folder / FILE, "Every threshold")
