"""Clients that lie, and what defends against them: accuracy of the global model and of Coherent, honest clients alone.

Run as ``python benchmarks/attacks.py demo --out FOLDER``: an experiment by name, or a file, once for each seed, lie,
share of liars and defence. What is done already in the folder is not done again. ``--shares 0`` is nobody lying: what a
defence costs. A run that diverges and stops has no number (nan). Ends with a table as Markdown, also in
``FOLDER/attacks.md``, and every number in ``FOLDER/attacks.csv``. With several ``--seeds`` the table has means over
them, and by how much the first of the ``--defences`` is better than each other one, with an interval that holds 95 % of
means over seeds and honest clients drawn anew.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
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
DRAWS = 2000
"""Of seeds and clients, for an interval."""


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
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    options = parser.parse_args()
    table = pd.DataFrame()
    for seed, share in product(map(int, options.seeds.split(",")), map(float, options.shares.split(","))):
        for lie, defence in product(options.lies.split(",") if share else ["none"], options.defences.split(",")):
            found = _run(options, seed, share, lie, defence)
            print({"seed": seed, "share": share, "lie": lie, "defence": defence, **_means(found)}, flush=True)
            found.insert(0, "seed", seed)
            found = found.assign(share=share, lie=lie, defence=defence)
            table = pd.concat([table, found], ignore_index=True)
            write_atomically(options.out / "attacks.csv", table.to_csv(index=False).encode())
    text = _markdown(table) if "," not in options.seeds else _compared(table)
    write_atomically(options.out / "attacks.md", text.encode())
    print(text)


def _run(options: argparse.Namespace, seed: int, share: float, lie: str, defence: str) -> pd.DataFrame:
    """Train and evaluate once; return each honest client's accuracy in % by method, and how many warnings came."""
    changes: dict[str, Any] = {"methods": METHODS, "seed": seed, "switching": False}
    changes |= {"training.defence": defence, "training.liars": share or 0.2, "training.finetune_epochs": 0}
    changes |= {name: float(value) for name, value in (item.split("=") for item in options.set)}
    if options.root:
        changes["root"] = options.root
    if options.rounds:
        changes["training.rounds"] = options.rounds
    experiment = make_experiment(gather(options.experiment, changes, None, None))
    folder = options.out / f"seed{seed}" / f"{lie}-{share:g}-{defence}".replace(" ", "_")
    liars: list[int] = []
    engine: Engine = LocalEngine(options.workers)
    clients = options_clients(experiment)
    if share:
        liars = choose_liars(clients, share, seed)
        engine = LyingEngine(LIES[lie], liars, options.workers)
    try:
        run = run_bench(experiment, folder, workers=options.workers, engine=engine)
    except TooFewClientsError:  # weights that have grown beyond all bounds are refused, and the run stops
        honest = pd.DataFrame({"client": [each for each in range(clients) if each not in liars]})
        return honest.assign(**dict.fromkeys(METHODS, float("nan")), caught=0, false=0)
    log = RunFiles(folder).training("fedavg").log.read_text().splitlines()
    told = [one for one in map(json.loads, log) if one["event"] == "warning" and one["client"] is not None]
    warned = {(one["client"], one["round"], one["stage"]) for one in told}
    false = sum(client not in liars for client, _, _ in warned)
    rows = run.rows[~run.rows["client"].isin(liars)]
    means = rows.groupby(["client", "method"])["accuracy"].mean().unstack()[METHODS] * 100
    return means.reset_index().assign(caught=len(warned) - false, false=false)


def options_clients(experiment: Any) -> int:
    """Return how many clients an experiment has."""
    from btfl.experiments.load import load_data

    return len(load_data(experiment))


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Return what one run comes to."""
    means = {name: round(float(rows[name].mean()), 2) for name in METHODS}
    return {**means, "caught": int(rows["caught"].iloc[0]), "false": int(rows["false"].iloc[0])}


def _markdown(table: pd.DataFrame) -> str:
    heads = ["lie", "share", "defence", "FedAvg", "Coherent", "caught", "false"]
    rows = []
    for (share, lie, defence), group in table.groupby(["share", "lie", "defence"], sort=False):
        found = _means(group)
        accuracies = [f"{found[name]:.1f}" for name in METHODS]
        rows.append([lie, f"{share:g}", defence, *accuracies, found["caught"], found["false"]])
    return _lines(heads, ["---", "---:", "---", "---:", "---:", "---:", "---:"], rows)


def _compared(table: pd.DataFrame) -> str:
    """Return means over seeds, and by how much the first defence is better than each other one."""
    rows = []
    for (share, lie), group in table.groupby(["share", "lie"], sort=False):
        runs = {name: each.set_index(["seed", "client"]) for name, each in group.groupby("defence", sort=False)}
        first = next(iter(runs))
        for name, each in runs.items():
            row = [lie, f"{share:g}", name]
            for method in METHODS:
                mean = each[method].groupby("seed").mean().mean(skipna=False)
                less = "" if name == first else _difference(runs[first][method] - each[method])
                row += [f"{mean:.1f}" if np.isfinite(each[method]).all() else "diverges", less]
            rows.append(row)
    heads = ["lie", "share", "defence", "FedAvg", "less", "Coherent", "less"]
    return _lines(heads, ["---", "---:", "---", "---:", "---", "---:", "---"], rows)


def _difference(by_client: pd.Series[float]) -> str:
    """Return the mean difference over seeds, and in brackets 95 % of those over seeds and clients drawn anew."""
    seeds = [each.to_numpy() for _, each in by_client.groupby("seed")]
    if not all(np.isfinite(each).all() for each in seeds):
        return ""
    rng = np.random.default_rng(0)
    draws = [
        np.mean(
            [rng.choice(seeds[which], len(seeds[which])).mean() for which in rng.integers(len(seeds), size=len(seeds))]
        )
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{np.mean([each.mean() for each in seeds]):+.1f} [{low:.1f}, {high:.1f}]"


def _lines(heads: list[str], ruler: list[str], rows: list[list[Any]]) -> str:
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in [heads, ruler, *rows])


if __name__ == "__main__":
    main()
