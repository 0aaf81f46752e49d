"""Clients that lie, and what defends against them: accuracy of the global model and of Coherent, honest clients alone.

Run as ``python benchmarks/attacks.py demo --out FOLDER``: an experiment by name, or a file, once for each lie, share of
liars and defence. What is done already in the folder is not done again. ``--shares 0`` is nobody lying: what a defence
costs. A run that diverges and stops has no number (nan). Ends with a table as Markdown, also in ``FOLDER/attacks.md``,
and every number in ``FOLDER/attacks.csv``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from btfl.benchmark.run import run_bench
from btfl.engines import LocalEngine
from btfl.engines.base import Engine
from btfl.errors import TooFewClientsError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.gather import gather
from btfl.recipes.settings import TrainingSettings
from btfl.runs.layout import RunFiles
from btfl.storage import write_atomically
from btfl.studies.lies import LIES, LyingEngine, choose_liars

(_DEFENCE,) = (each for each in TrainingSettings.knobs() if each.name == "defence")
METHODS = ["fedavg", "coherent"]


def main() -> None:
    """Read the command line and go through all runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", help="where the dataset is")
    parser.add_argument("--lies", default=",".join(LIES))
    parser.add_argument("--shares", default="0,0.1,0.4")
    parser.add_argument("--defences", default=",".join(_DEFENCE.choices))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for share in map(float, options.shares.split(",")):
        for lie in options.lies.split(",") if share else [""]:
            for defence in options.defences.split(","):
                rows.append(
                    {"share": share, "lie": lie or "none", "defence": defence, **_run(options, share, lie, defence)}
                )
                print(rows[-1], flush=True)
                table = pd.DataFrame(rows)
                write_atomically(options.out / "attacks.csv", table.to_csv(index=False).encode())
                write_atomically(options.out / "attacks.md", _markdown(table).encode())
    print(_markdown(pd.DataFrame(rows)))


def _run(options: argparse.Namespace, share: float, lie: str, defence: str) -> dict[str, float]:
    """Train and evaluate once; return accuracy in % by method, and how many warnings there were."""
    changes: dict[str, Any] = {"methods": METHODS, "seed": options.seed, "switching": False}
    changes |= {"training.defence": defence, "training.liars": share or 0.2, "training.finetune_epochs": 0}
    changes |= {name: float(value) for name, value in (item.split("=") for item in options.set)}
    if options.root:
        changes["root"] = options.root
    if options.rounds:
        changes["training.rounds"] = options.rounds
    experiment = make_experiment(gather(options.experiment, changes, None, None))
    folder = options.out / f"{lie or 'none'}-{share:g}-{defence}".replace(" ", "_")
    liars: list[int] = []
    engine: Engine = LocalEngine(options.workers)
    if share:
        clients = options_clients(experiment)
        liars = choose_liars(clients, share, options.seed)
        engine = LyingEngine(LIES[lie], liars, options.workers)
    try:
        run = run_bench(experiment, folder, workers=options.workers, engine=engine)
    except TooFewClientsError:  # weights that have grown beyond all bounds are refused, and the run stops
        return {**dict.fromkeys(METHODS, float("nan")), "caught": 0, "false": 0}
    log = RunFiles(folder).training("fedavg").log.read_text().splitlines()
    told = [one for one in map(json.loads, log) if one["event"] == "warning" and one["client"] is not None]
    warned = {(one["client"], one["round"], one["stage"]) for one in told}
    honest = run.rows[~run.rows["client"].isin(liars)]
    means = honest.groupby("method")["accuracy"].mean() * 100
    false = sum(client not in liars for client, _, _ in warned)
    return {**{name: round(float(means[name]), 2) for name in METHODS}, "caught": len(warned) - false, "false": false}


def options_clients(experiment: Any) -> int:
    """Return how many clients an experiment has."""
    from btfl.experiments.load import load_data

    return len(load_data(experiment))


def _markdown(table: pd.DataFrame) -> str:
    heads = ["lie", "share", "defence", "FedAvg", "Coherent", "caught", "false"]
    rows: list[list[Any]] = [
        [row.lie, f"{row.share:g}", row.defence, f"{row.fedavg:.1f}", f"{row.coherent:.1f}", row.caught, row.false]
        for row in table.itertuples()
    ]
    ruler = ["---", "---:", "---", "---:", "---:", "---:", "---:"]
    lines: list[list[Any]] = [list(heads), list(ruler), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    main()
