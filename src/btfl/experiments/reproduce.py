"""The paper's tables and figures at the paper's size or honestly smaller: every change is written down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from btfl.data.catalogue import load_source
from btfl.data.source import Source
from btfl.errors import DataError, InputError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.files import ExperimentFile, experiment_names, read_experiment

FEWEST_CLIENTS, FEWEST_ROUNDS, FEWEST_IMAGES = 4, 3, 200  # images for each client
SMALLEST_IMAGE = 16
"""The paper's cnn cannot see anything smaller."""


@dataclass(frozen=True)
class Substitution:
    """What is used in place of the paper's, because it is available or small."""

    dataset: str | None = None
    root: Path | None = None
    shift: str | None = None
    methods: tuple[str, ...] = ()


def reproductions() -> list[ExperimentFile]:
    """Return every table and figure of the paper."""
    return [found for found in map(read_experiment, experiment_names()) if found.paper]


def plan(file: ExperimentFile, scale: float, instead: Substitution | None = None) -> list[Experiment]:
    """Return the experiments to run, a run and seed each; notes say all that is not as in the file.

    Parameters
    ----------
    file : a table or figure of the paper, ``read_experiment("table2")``, or any other experiment
    scale : share of its rounds, images and seeds, above 0 and at most 1; of its clients the root of that share
    instead : another dataset, domain or methods
    """
    first = file.first()  # or an error, if there is nothing to run
    if not 0 < scale <= 1:
        raise InputError(f"--scale is above 0 and at most 1, the paper's size; not {scale}")
    instead, all_seeds = instead or Substitution(), file.seeds or (first.get("seed", 0),)
    seeds = all_seeds[: max(1, round(scale * len(all_seeds)))]
    sources: dict[str, Source] = {}
    found: list[Experiment] = []
    for run in file.runs:
        values: dict[str, Any] = {**file.values, **run}
        paper = make_experiment(values)
        dataset = instead.dataset or paper.dataset
        if dataset not in sources:
            sources[dataset] = _source(dataset, instead)
        source = sources[dataset]
        changes, notes = _substituted(paper, instead, source)
        if scale < 1:
            smaller, sizes = _scaled(paper, scale, source)
            changes |= smaller
            notes.append(f"scale {scale:g} of the paper's: {', '.join([*sizes, _of_seeds(seeds, all_seeds)])}")
        if file.paper:
            notes.insert(0, f"Reproduces {file.paper}: {file.title}.")
        model = changes.get("model", paper.model)
        name = f"{file.name}-{dataset}-{model}-dir{paper.alpha:g}"
        if any(experiment.name == name for experiment in found):
            name += f"-{len(found) + 1}"  # substituted, two runs may look alike
        values |= {**changes, "name": name, "notes": (*paper.notes, *notes)}
        found += [make_experiment({**values, "seed": seed}) for seed in seeds]
    return found


def _source(dataset: str, instead: Substitution) -> Source:
    try:
        return load_source(dataset, root=instead.root, shift=instead.shift)
    except (DataError, InputError) as error:
        raise DataError(f"{error}. Or take another dataset in its place, for example --dataset digits") from None


def _substituted(paper: Experiment, instead: Substitution, source: Source) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that change, and notes on them."""
    notes = []
    changes: dict[str, Any] = {
        name: value for name, value in (("root", instead.root), ("shift", instead.shift)) if value is not None
    }
    if instead.dataset is not None and instead.dataset != paper.dataset:
        changes["dataset"] = instead.dataset
        notes.append(f"{instead.dataset} takes the place of the paper's {paper.dataset}.")
    if paper.model == "cnn" and min(source.sample_shape[:2]) < SMALLEST_IMAGE:
        changes["model"] = "mlp"
        notes.append(
            f"The model is mlp instead of cnn, since images are {source.sample_shape[0]}x{source.sample_shape[1]}."
        )
    if instead.methods:
        changes["methods"] = instead.methods
        notes.append(f"Methods chosen by hand: {', '.join(instead.methods)}.")
    return changes, notes


def _scaled(paper: Experiment, scale: float, source: Source) -> tuple[dict[str, Any], list[str]]:
    """Shrink rounds and images by the scale, and clients by its root, so that each still has enough to learn from."""
    rounds, clients = paper.training_settings().rounds, paper.clients
    if clients is None:
        raise InputError(f"{paper.name} has the clients that exist, whose number cannot be scaled")
    fewer_rounds = max(min(rounds, FEWEST_ROUNDS), round(rounds * scale))
    fewer_clients = max(min(clients, FEWEST_CLIENTS), round(clients * math.sqrt(scale)))
    total = len(source.pool)
    images = min(total, max(round(total * scale), FEWEST_IMAGES * fewer_clients))
    changes: dict[str, Any] = {
        "clients": fewer_clients,
        "samples": images if images < total else None,
        "training": {**paper.training, "rounds": fewer_rounds},
    }
    notes = [
        f"{fewer_rounds} rounds for {rounds}",
        f"{fewer_clients} clients for {clients}",
        f"{images:,} images of {total:,}",
    ]
    width = paper.model_options.get("width", 1)
    if width > 1:
        narrower = max(1, round(width * scale))
        changes["model_options"] = {**paper.model_options, "width": narrower}
        notes.append(f"width {narrower} for {width}")
    return changes, notes


def _of_seeds(seeds: Sequence[int], of: Sequence[int]) -> str:
    return f"{len(seeds)} seed{'s' * (len(seeds) > 1)} of {len(of)}"
