"""How the coherent method's defaults were chosen: on the clients' validation parts alone, never on a test stream.

Run as ``python benchmarks/coherent_settings.py RUN...`` with folders of finished runs (``btfl bench``). For every
client it makes the benchmark's five kinds of stream, and one of turns of 100, from validation samples: its own (IND)
and as many of all others' (EXD), as they are and under shifts that no test stream has (``strange_images.py``). It
gives mean accuracy and log loss over clients and streams for each setting, all runs beside one another.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from strange_images import SHIFTS, shifted

from btfl import ClientBundle, Method
from btfl.experiments.experiment import Experiment
from btfl.experiments.load import load_data
from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings
from btfl.models.forward import extract
from btfl.randomness import generator
from btfl.runs.layout import RunFiles
from btfl.runs.saved import load_run
from btfl.runs.trained import TrainedFederation

Floats = NDArray[np.float64]
Stream = tuple[Floats, NDArray[np.int64]]

TURN, LONGEST = 100, 300
VARIANTS: tuple[Mapping[str, Any], ...] = (
    {"temperature": 2.0, "shrinkage": 0.2, "openness": 0.02, "distorted": 0.0},  # the pilot's
    *(
        {"temperature": t, "distorted": w, "openness": o}
        for t in (1.25, 1.5, 1.75)
        for w in (0.0, 1.0, 3.0, 10.0)
        for o in (0.05, 0.1, 0.15, 0.2)
    ),
    *({"shrinkage": r} for r in (0.01, 0.05, 0.1, 0.2)),
    *({"forgetting": f} for f in (0.95, 0.98, 0.99, 0.995)),
    *({"change": h} for h in (0.001, 0.002, 0.005, 0.01, 0.02)),
    *({"evidence": kind} for kind in ("discriminant", "both")),
    *(
        {"global_heads": everyone, "local_heads": own}
        for everyone in ("fedavg", "generative", "both")
        for own in ("personal", "generative", "both")
    ),
)


@dataclass(frozen=True, eq=False)
class Validation:
    """A client's validation part: features as they are and under one shift a sample, drawn at random."""

    clean: Floats
    strange: Floats
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Federation:
    """What settings are judged on."""

    bundles: list[ClientBundle]
    streams: list[list[Stream]]
    """Of each client."""


def load(run: Path, recipe: str) -> Federation:
    """Load a finished run, and look at every client's validation images through its network."""
    experiment = Experiment.model_validate(load_run(run).record["experiment"])
    trained, data = TrainedFederation.load(RunFiles(run).training(recipe).final.folder), load_data(experiment)
    parts = []
    for number in range(len(data)):
        images, rng = data.of(number, experiment.training_settings().rounds).validation, generator(0, "shifts", number)
        network, chosen = trained.client(number).extractor(), rng.integers(len(SHIFTS), size=len(images.labels))
        strange = images.values.copy()
        for kind, name in enumerate(SHIFTS):
            if (chosen == kind).any():
                strange[chosen == kind] = shifted(images.values[chosen == kind], name, rng)
        clean, strange_ = (extract(network, part).astype(np.float64) for part in (images.values, strange))
        parts.append(Validation(clean, strange_, images.labels))
    bundles = [trained.outcome(number).bundle for number in range(len(parts))]
    return Federation(bundles, [streams(parts, number) for number in range(len(parts))])


def streams(parts: list[Validation], client: int) -> list[Stream]:
    """Return a client's streams A to E, and one that turns external and back every 100 samples."""
    rng = generator(0, "validation streams", client)
    own = _drawn(parts[client], rng)
    others = [part for number, part in enumerate(parts) if number != client]
    names = ("clean", "strange", "labels")
    pool = Validation(*(np.concatenate([getattr(part, name) for part in others]) for name in names))
    external = _drawn(pool, rng, len(own.labels))
    pairs = [(own.clean, own.labels), (own.strange, own.labels)]
    pairs += [(external.clean, external.labels), (external.strange, external.labels)]
    everything = tuple(np.concatenate([pair[kind] for pair in pairs]) for kind in (0, 1))
    mixed = rng.permutation(len(everything[0]))[:LONGEST]
    clean = [np.concatenate([getattr(own, name), getattr(external, name)]) for name in ("clean", "labels")]
    turns = np.argsort(np.concatenate([_turn(len(own.labels)), _turn(len(external.labels), 1)]), kind="stable")
    return [*pairs, (everything[0][mixed], everything[1][mixed]), (clean[0][turns], clean[1][turns])]


def _drawn(part: Validation, rng: np.random.Generator, most: int = LONGEST) -> Validation:
    rows = rng.permutation(len(part.labels))[:most]
    return Validation(part.clean[rows], part.strange[rows], part.labels[rows])


def _turn(samples: int, first: int = 0) -> NDArray[np.int64]:
    """Return each sample's turn: 0, 2, 4 ... or 1, 3, 5 ..., of 100 samples each."""
    return np.arange(samples) // TURN * 2 + first


def judged(federation: Federation, make: Callable[[ClientBundle], Method]) -> tuple[float, float]:
    """Return mean accuracy (%) and log loss of a method over clients and streams."""
    accuracy, loss = [], []
    for bundle, of_client in zip(federation.bundles, federation.streams, strict=True):
        adapter = make(bundle)
        for features, labels in of_client:
            adapter.reset()
            probabilities = adapter.predict(features)
            accuracy.append((probabilities.argmax(axis=1) == labels).mean())
            loss.append(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-12)).mean())
    return 100 * float(np.mean(accuracy)), float(np.mean(loss))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--recipe", default="fedavg", help="how they were trained: fedavg or balanced")
    typed = parser.parse_args()
    runs, every = typed.runs, [load(run, typed.recipe) for run in typed.runs]
    print("| settings | mean: accuracy, log loss | " + " | ".join(run.name for run in runs) + " |")
    print("| --- |" + " --- |" * (len(runs) + 1))
    for changes in ({}, *VARIANTS):
        results = [judged(federation, partial(Coherent, settings=CoherentSettings(**changes))) for federation in every]
        told = ", ".join(f"{key} = {value}" for key, value in changes.items()) or "default"
        cells = [f"{a:.2f}, {loss:.4f}" for a, loss in [np.mean(results, axis=0), *results]]
        print(f"| {told} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
