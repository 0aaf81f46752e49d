"""Privacy for whole clients (DP-FedAvg and a private summary) against the number of clients, on synthetic ones.

Run as ``python benchmarks/private_clients.py --out FOLDER``: rows as those of ``million_rows.py`` (Gaussian classes,
moved a little for each client, with a label mix of its own), a linear model, 20 to 1,000 clients, for several epsilons.
The noise is a function of the seed, so that the table repeats. Ends with a table as Markdown, also in
``FOLDER/clients.md``, and a row for each run in ``FOLDER/clients.csv``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from million_rows import write_rows

from btfl.benchmark.run import run_bench
from btfl.errors import TooFewClientsError
from btfl.experiments.experiment import make_experiment
from btfl.storage import write_atomically

METHODS = ["fedavg", "fedthe-on-fedavg", "btfl", "coherent"]
ROWS, DIMENSIONS = 100, 16


def main() -> None:
    """Read the command line and go through all runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--clients", default="20,100,300,1000")
    parser.add_argument("--epsilons", default="inf,8,4,2,1")
    parser.add_argument("--methods", default=",".join(METHODS), help="fewer are quicker")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--radius", type=float, default=8.0, help="to which features are clipped")
    parser.add_argument("--bound", type=float, default=50.0, help="to which a client's sums are shortened, in samples")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for clients in map(int, options.clients.split(",")):
        path = options.out / f"{clients}.parquet"
        if not path.exists():
            write_rows(path, ROWS * clients, clients, DIMENSIONS)
        for epsilon in map(float, options.epsilons.split(",")):
            rows.append({"clients": clients, "epsilon": epsilon, **_run(options, path, clients, epsilon)})
            print(rows[-1], flush=True)
            table = pd.DataFrame(rows)
            write_atomically(options.out / "clients.csv", table.to_csv(index=False).encode())
            write_atomically(options.out / "clients.md", _markdown(table).encode())
    print(_markdown(pd.DataFrame(rows)))


def _run(options: argparse.Namespace, path: Path, clients: int, epsilon: float) -> dict[str, float]:
    """Train and evaluate once; return accuracy in % by method: mean over clients and streams."""
    training: dict[str, Any] = {"rounds": options.rounds, "learning_rate": options.learning_rate, "finetune_epochs": 0}
    if epsilon < float("inf"):
        training |= {"privacy": "full", "epsilon": epsilon, "privacy_noise": "seeded", "update_clip": options.clip}
        training |= {"feature_radius": options.radius, "client_bound": options.bound}
    experiment = make_experiment(
        {
            "name": f"{clients}-clients", "dataset": "table", "root": str(path), "partition": "natural",
            "model": "linear", "methods": options.methods.split(","), "training": training, "switching": False,
            "seed": options.seed, "standardise": False,
        }
    )  # fmt: skip
    folder = options.out / f"{clients}-{epsilon:g}-{options.clip:g}-{options.learning_rate:g}-{options.seed}"
    try:
        run = run_bench(experiment, folder)
    except TooFewClientsError:  # weights that have grown beyond all bounds are refused, and the run stops
        return {}
    means = run.rows.groupby("method")["accuracy"].mean() * 100
    return {name: round(float(means[name]), 2) for name in means.index}


def _markdown(table: pd.DataFrame) -> str:
    heads = ["clients", "epsilon", "FedAvg", "FedTHE", "BTFL", "Coherent"]
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    for row in table.to_dict("records"):
        numbers = (f"{row.get(name, float('nan')):.1f}" for name in METHODS)
        lines.append(f"| {row['clients']:,} | {row['epsilon']:g} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
