"""What differential privacy costs: accuracy of the methods at several epsilons, of the summary alone and of all.

Run as ``python benchmarks/privacy.py hapt-natural --root FILE --radius 30 --out FOLDER``, or ``--start zoo:NAME`` for
weights that are there already. The federation is trained once without privacy; a private summary changes its end alone,
private training is a training of its own: ``--full`` for whole clients (DP-FedAvg), ``--records N`` for single records
(DP-SGD in each client, planned for N records). The noise is a function of the seed (``privacy_noise=seeded``),
so that the table repeats. A run that diverges and stops has no number (nan). Ends with a table as Markdown, also in
``FOLDER/privacy.md``, and a row for each run in ``FOLDER/privacy.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from btfl.benchmark.run import run_bench
from btfl.errors import TooFewClientsError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.gather import gather
from btfl.runs.start import Start
from btfl.storage import write_atomically
from btfl.zoo.start import find_start

METHODS = ["fedavg", "fedthe-on-fedavg", "btfl", "coherent", "coherent-1"]


def main() -> None:
    """Read the command line and go through all runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiment", nargs="?")
    parser.add_argument("--start", help="take trained weights from here")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", help="where the dataset is")
    parser.add_argument("--radius", type=float, required=True, help="to which features are clipped")
    parser.add_argument("--bound", type=float, default=100.0, help="to which a client's sums are shortened, in samples")
    parser.add_argument("--epsilons", default="1,2,4,8")
    parser.add_argument("--units", default="record,client")
    parser.add_argument("--full", action="store_true", help="private training, too")
    parser.add_argument("--full-only", action="store_true", help="of all runs, private training of whole clients alone")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--records", type=int, help="DP-SGD, too, for clients of about so many records")
    parser.add_argument("--record-clip", type=float, default=0.1, help="DP-SGD: longest gradient of a record")
    parser.add_argument("--records-only", action="store_true", help="of all runs, those of DP-SGD alone")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    epsilons = [float(text) for text in options.epsilons.split(",")]
    rows: list[dict[str, Any]] = []

    def add(of: str, unit: str, epsilon: float, settings: dict[str, Any]) -> None:
        folder = options.out / f"{of}-{unit}-{epsilon:g}"
        rows.append({"private": of, "unit": unit, "epsilon": epsilon, **_run(options, folder, settings)})
        print(rows[-1], flush=True)
        table = pd.DataFrame(rows)
        write_atomically(options.out / "privacy.csv", table.to_csv(index=False).encode())
        write_atomically(options.out / "privacy.md", _markdown(table).encode())

    alone = options.records_only or options.full_only
    if not alone:
        add("nothing", "-", float("inf"), {})
    private = () if alone else ("summary", "full") if options.full else ("summary",)
    for of in ("full",) if options.full_only else private:
        for unit in options.units.split(",") if of == "summary" else ("client",):
            for epsilon in epsilons:
                add(of, unit, epsilon, {"privacy": of, "privacy_unit": unit, "epsilon": epsilon})
    for epsilon in epsilons if options.records else ():
        local = {"privacy_mechanism": "dp-sgd", "client_samples": options.records, "record_clip": options.record_clip}
        add("dp-sgd", "record", epsilon, {"privacy": "full", "privacy_unit": "record", "epsilon": epsilon, **local})
    print(_markdown(pd.DataFrame(rows)))


def _run(options: argparse.Namespace, folder: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Train and evaluate once; return accuracy in % by method: mean over clients and streams."""
    changes: dict[str, Any] = {"methods": METHODS, "switching": False}
    if settings:
        settings |= {"privacy_noise": "seeded", "feature_radius": options.radius, "client_bound": options.bound}
        settings |= {"update_clip": options.clip}
    changes |= {f"training.{name}": value for name, value in settings.items()}
    if options.root:
        changes["root"] = options.root
    if options.rounds:
        changes["training.rounds"] = options.rounds
    start = _start(options, settings)
    under, recipes = (None, None) if start is None else (start.experiment, start.recipes)
    experiment = make_experiment(gather(options.experiment, changes, under, recipes))
    try:
        run = run_bench(experiment, folder, workers=options.workers, start=start)
    except TooFewClientsError:  # weights that have grown beyond all bounds are refused, and the run stops
        return dict.fromkeys(METHODS, float("nan"))
    means = run.rows.groupby("method")["accuracy"].mean() * 100
    return {name: round(float(means[name]), 2) for name in METHODS}


def _start(options: argparse.Namespace, settings: dict[str, Any]) -> Start | None:
    if settings.get("privacy") == "full":
        return None
    if options.start:
        return find_start(options.start)
    trained = options.out / "nothing---inf"
    return find_start(str(trained)) if settings else None


def _markdown(table: pd.DataFrame) -> str:
    heads = ["private", "unit", "epsilon", "FedAvg", "FedTHE", "BTFL", "Coherent", "Coherent 1"]
    rows: list[list[Any]] = [
        [
            row.private,
            row.unit,
            f"{row.epsilon:g}",
            *(f"{getattr(row, name.replace('-', '_')):.1f}" for name in METHODS),
        ]
        for row in table.rename(columns=lambda name: name.replace("-", "_")).itertuples()
    ]
    ruler = ["---", "---", *["---:"] * 6]
    lines: list[list[Any]] = [list(heads), list(ruler), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    main()
