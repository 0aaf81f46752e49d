"""Federations in which nobody lies: whom does the defence ``screen`` leave out all the same, and why?

Run as ``python benchmarks/honest_clients.py --out FOLDER`` for digits, dealt to 4 to 100 clients in many ways, or with
the name or file of an experiment: ``python benchmarks/honest_clients.py hapt-natural --root FILE --out FOLDER``.
``--seeds`` are those of the deal and of training: bounds are chosen with some and confirmed with others. A row is one
federation: answers that were compared (updates of all rounds, and sums of the end), and how many of them were left out.
What is in ``FOLDER/honest.csv`` already is not trained again; ``FOLDER/honest.md`` has totals.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from btfl.engines import Event, LocalEngine
from btfl.engines.federation import train_federation
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.gather import gather
from btfl.experiments.load import load_data
from btfl.recipes.registry import RECIPES, make_recipe
from btfl.storage import write_atomically

DEALS: dict[str, dict[str, Any]] = {
    **{f"dirichlet {alpha:g}": {"partition": "dirichlet", "alpha": alpha} for alpha in (0.05, 0.1, 0.3, 1.0, 10.0)},
    **{f"shards {count}": {"partition": "shards", "shards": count} for count in (1, 2)},
}
KEYS = ["experiment", "recipe", "deal", "clients", "seed"]


def main() -> None:
    """Read the command line and go through all federations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiment", nargs="?", help="leave out for the digits, dealt in many ways")
    parser.add_argument("--root", help="where the dataset is")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--recipes", default="fedavg", help="by name, or all")
    parser.add_argument("--clients", default="4,10,30,100", help="of the digits")
    parser.add_argument("--deals", default=",".join(DEALS), help="of the digits: how they are dealt")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "honest.csv"
    table = pd.read_csv(kept) if kept.exists() else pd.DataFrame(columns=KEYS)
    done = {tuple(map(str, key)) for key in table[KEYS].itertuples(index=False)}
    for about, recipe, experiment in _federations(options):
        data = load_data(experiment)
        key = {**about, "recipe": recipe, "clients": len(data), "seed": experiment.seed}
        if tuple(str(key[name]) for name in KEYS) in done:
            continue
        row = {**key, **_train(recipe, experiment, data, options.workers)}
        print(row, flush=True)
        table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
        write_atomically(kept, table.to_csv(index=False).encode())
        write_atomically(options.out / "honest.md", _markdown(table).encode())
    print(_markdown(table))


def _federations(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], str, Experiment]]:
    recipes = list(RECIPES) if options.recipes == "all" else options.recipes.split(",")
    changes: dict[str, Any] = {"training.rounds": options.rounds} if options.rounds else {}
    changes |= {"training.finetune_epochs": 0, "training.defence": "screen"}
    if options.root:
        changes["root"] = options.root
    for seed in map(int, options.seeds.split(",")):
        changes["seed"] = seed
        for recipe in recipes:
            if options.experiment:
                made = make_experiment(gather(options.experiment, changes))
                yield {"experiment": made.name, "deal": made.partition}, recipe, made
                continue
            for clients in map(int, options.clients.split(",")):
                for deal in options.deals.split(","):
                    dealt = {**changes, **DEALS[deal], "clients": clients}
                    yield {"experiment": "digits", "deal": deal}, recipe, make_experiment(gather("demo", dealt))


def _train(recipe: str, experiment: Experiment, data: Any, workers: int) -> dict[str, Any]:
    """Train one federation; return how many answers were compared and how many of them were left out."""
    events: list[Event] = []
    made = make_recipe(recipe, experiment.training_settings(), data.sample_shape, len(data.source.classes))
    begun = time.monotonic()
    train_federation(made, data, LocalEngine(workers), report=events.append)
    told = [event for event in events if event.warning]
    updates = sum(event.clients for event in events if event.stage == "train" and event.metrics)
    left = Counter("updates" if event.stage == "train" else "sums" for event in told)
    return {
        "rounds": made.rounds, "updates": updates, "updates out": left["updates"], "sums": len(data),
        "sums out": left["sums"], "who": len({event.client for event in told}),
        "why": "; ".join(sorted({event.warning.partition(": ")[2] for event in told}))[:300],
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def _markdown(table: pd.DataFrame) -> str:
    numbers = ["updates", "updates out", "sums", "sums out"]
    groups = table.groupby(["experiment", "recipe"], sort=False)
    found = groups[numbers].sum().assign(federations=groups.size(), of=groups["clients"].agg(_range)).reset_index()
    lines = [f"| {' | '.join(['federations of', 'recipe', 'number', 'clients', *numbers])} |", f"|{' --- |' * 8}"]
    for row in found.to_dict("records"):
        told = [row["experiment"], row["recipe"], row["federations"], row["of"], *(int(row[name]) for name in numbers)]
        lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines) + "\n"


def _range(clients: pd.Series[int]) -> str:
    return f"{clients.min()} to {clients.max()}" if clients.min() < clients.max() else str(clients.min())


if __name__ == "__main__":
    main()
