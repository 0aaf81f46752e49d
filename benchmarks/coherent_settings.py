"""How the coherent method's defaults were chosen: on the clients' validation parts alone, never on a test stream.

Run as ``python benchmarks/coherent_settings.py RUN...`` with folders of finished runs (``btfl bench``) whose recipe is
fedavg. For every client it makes four streams of validation samples: its own (IND), as many of all others' (EXD), both
shuffled together, and both in turns of 100; and gives mean accuracy and log loss over clients and streams for each
setting, all runs beside one another. The likeliest temperature is that of the generative head on each client's own
validation part, under the client's own label shares, added up over clients.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl import ClientBundle
from btfl.adapters.coherent import CoherentAdapter
from btfl.adapters.coherent_settings import CoherentSettings
from btfl.bayes.evidence import log_softmax
from btfl.bayes.generative import class_scores, shares
from btfl.engines.trained import TrainedFederation
from btfl.randomness import generator

Floats = NDArray[np.float64]
Stream = tuple[Floats, NDArray[np.int64]]

TURN = 100
TEMPERATURES, SHRINKAGES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0), (0.02, 0.05, 0.1, 0.2, 0.4)
VARIANTS: tuple[Mapping[str, Any], ...] = (
    *({"temperature": t, "shrinkage": r} for t in TEMPERATURES for r in SHRINKAGES),
    *({"forgetting": f} for f in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
    *({"change": h} for h in (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)),
    *({"openness": o} for o in (0.005, 0.02, 0.05, 0.1)),
    *({"evidence": kind} for kind in ("discriminant", "both")),
    *(
        {"global_heads": everyone, "local_heads": own}
        for everyone in ("fedavg", "generative", "both")
        for own in ("personal", "generative", "both")
    ),
)


def validation(bundle: ClientBundle) -> Stream:
    statistics = bundle.statistics
    return statistics["validation_features"].astype(np.float64), statistics["validation_labels"].astype(np.int64)


def streams(bundles: list[ClientBundle], client: int) -> Iterator[Stream]:
    """Own validation samples, others', both shuffled, and both in turns."""
    rng = generator(0, "validation streams", client)
    own, labels = validation(bundles[client])
    others = [validation(bundle) for number, bundle in enumerate(bundles) if number != client]
    pool, pool_labels = (np.concatenate(parts) for parts in zip(*others, strict=True))
    drawn = rng.choice(len(pool), size=min(len(own), len(pool)), replace=False)
    order, external = rng.permutation(len(own)), (pool[drawn], pool_labels[drawn])
    yield own[order], labels[order]
    yield external
    mixed, mixed_labels = np.concatenate([own, external[0]]), np.concatenate([labels, external[1]])
    order = rng.permutation(len(mixed))
    yield mixed[order], mixed_labels[order]
    turns = np.argsort(np.concatenate([_turn(len(own)), _turn(len(external[0]), 1)]), kind="stable")
    yield mixed[turns], mixed_labels[turns]


def _turn(samples: int, first: int = 0) -> NDArray[np.int64]:
    """Give each sample's turn: 0, 2, 4 ... or 1, 3, 5 ..., of 100 samples each."""
    return np.arange(samples) // TURN * 2 + first


def judged(bundles: list[ClientBundle], settings: CoherentSettings) -> tuple[float, float]:
    """Give mean accuracy (%) and log loss over clients and streams."""
    accuracy, loss = [], []
    for client, bundle in enumerate(bundles):
        adapter = CoherentAdapter(bundle, settings)
        for features, labels in streams(bundles, client):
            adapter.reset()
            probabilities = adapter.predict(features)
            accuracy.append((probabilities.argmax(axis=1) == labels).mean())
            loss.append(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-12)).mean())
    return 100 * float(np.mean(accuracy)), float(np.mean(loss))


def likeliest_temperature(bundles: list[ClientBundle], shrinkage: float) -> float:
    grid = np.arange(0.5, 6.01, 0.1)
    total = np.zeros(len(grid))
    for bundle in bundles:
        counts, sums, scatter, own = (
            bundle.statistics[name].astype(np.float64)
            for name in (
                "global_class_counts",
                "global_class_feature_sums",
                "global_feature_scatter",
                "local_class_counts",
            )
        )
        features, labels = validation(bundle)
        scores = class_scores(counts, sums, scatter, shrinkage)
        prior = shares(own, shares(counts), CoherentSettings().openness)
        for number, temperature in enumerate(grid):
            logits = scores.under(prior, float(temperature)).logits(features)
            total[number] += log_softmax(logits)[np.arange(len(labels)), labels].sum()
    return float(grid[total.argmax()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    runs = parser.parse_args().runs
    federations = [TrainedFederation.load(run / "training" / "fedavg" / "final") for run in runs]
    every = [[federation.outcome(n).bundle for n in range(len(federation.outcomes))] for federation in federations]
    for run, bundles in zip(runs, every, strict=True):
        likeliest = ", ".join(f"{likeliest_temperature(bundles, r):.1f} (shrinkage {r:g})" for r in SHRINKAGES)
        print(f"{run.name}: likeliest temperature {likeliest}")
    print("\n| settings | " + " | ".join(f"{run.name}: accuracy, log loss" for run in runs) + " |")
    print("| --- |" + " --- |" * len(runs))
    for changes in ({}, *VARIANTS):
        results = [judged(bundles, CoherentSettings(**changes)) for bundles in every]
        told = ", ".join(f"{key} = {value}" for key, value in changes.items()) or "default"
        print(f"| {told} | " + " | ".join(f"{a:.2f}, {loss:.4f}" for a, loss in results) + " |", flush=True)


if __name__ == "__main__":
    main()
