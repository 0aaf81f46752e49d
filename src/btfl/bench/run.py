"""One benchmark run, from data to results: train what the methods need, evaluate them all, write everything down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from btfl.bench.evaluate import Evaluation, evaluate, needed_recipes, suitable
from btfl.bench.record import constants, describe_run
from btfl.data.federated import FederatedData
from btfl.data.source import Source
from btfl.data.streams import Manifest, make_manifest
from btfl.engines import Event, FaultSettings, LocalEngine, train_federation
from btfl.engines.base import Engine
from btfl.engines.federation import is_finished, run_spec
from btfl.engines.log import TensorBoardReport, need_tensorboard
from btfl.experiments.experiment import Experiment
from btfl.experiments.load import load_data
from btfl.methods.registry import find_method
from btfl.recipes.registry import make_recipe
from btfl.runs.results import Predictions, client_rows, sample_rows, write_table
from btfl.runs.saved import RECORD, RESULTS, SAMPLES
from btfl.runs.trained import TrainedFederation
from btfl.storage import write_json
from btfl.zoo.start import Start, digest_note, last_round, lay, put

Watch = Callable[[str, Event], None]
"""Told the recipe and what has happened."""


@dataclass(frozen=True, eq=False)
class BenchRun:
    """A finished run."""

    experiment: Experiment
    folder: Path
    source: Source
    manifest: Manifest
    rows: pd.DataFrame
    record: Mapping[str, Any]
    """What ``run.json`` says."""
    evaluation: Evaluation
    """The trained federations and streams, for whoever wants to go on with them."""


def run_bench(
    experiment: Experiment,
    folder: str | Path,
    *,
    workers: int = 1,
    engine: Engine | None = None,
    watch: Watch | None = None,
    faults: FaultSettings | None = None,
    tensorboard: bool = False,
    start: Start | None = None,
) -> BenchRun:
    """Do everything an experiment asks for; what is already in the folder is not done again.

    With a ``start`` nothing is trained: the weights are taken from there.
    """
    if tensorboard:
        need_tensorboard()
    folder = Path(folder)
    watch = watch or (lambda recipe, event: None)
    data = load_data(experiment)
    source, partition = data.source, data.partition
    manifest = make_manifest(source, partition, experiment.stream_settings(), experiment.stream_seed)
    methods = tuple(find_method(name) for name in experiment.methods)

    federations: dict[str, TrainedFederation] = {}
    for name in needed_recipes(methods):
        federations[name] = train_recipe(
            name,
            experiment,
            data,
            engine or LocalEngine(workers),
            folder,
            watch=watch,
            faults=faults,
            tensorboard=tensorboard,
            start=start,
        )

    methods, left_out = suitable(methods, federations)
    manifest.save(folder)
    notes = (*_copies(partition.copies, manifest.left_out), *left_out, *_start_notes(start, federations))
    record = describe_run(experiment, source, manifest, methods, notes)
    predictions: list[Predictions] = []
    evaluation = Evaluation(source, manifest, federations, methods, experiment.test_batch, experiment.switching)
    clients = len(manifest.clients)
    for number, of_client in enumerate(evaluate(evaluation, workers), start=1):
        predictions.extend(of_client)
        watch("evaluation", Event("evaluate", 0, 0, number, clients, {}))
    rows = client_rows(predictions, experiment.test_batch, constants(record))
    write_table(sample_rows(predictions, {"run": record["run"], "seed": experiment.seed}), folder / SAMPLES)
    write_table(rows, folder / RESULTS)
    write_json(folder / RECORD, record)  # last: a folder that has it is complete
    return BenchRun(experiment, folder, source, manifest, rows, record, evaluation)


def train_recipe(
    name: str,
    experiment: Experiment,
    data: FederatedData,
    engine: Engine,
    folder: Path,
    *,
    watch: Watch,
    faults: FaultSettings | None = None,
    tensorboard: bool = False,
    start: Start | None = None,
) -> TrainedFederation:
    """Train one recipe of an experiment, in a folder of its own inside the run's; go on or load it if it is there.

    Where its rounds are those of another recipe, that one is trained, if need be, and only the end is the recipe's own.
    """
    source, place = data.source, training_folder(folder, name)
    recipe = make_recipe(name, experiment.training_settings(), source.image_shape, len(source.classes))
    if start is not None:
        lay(start, recipe, run_spec(recipe, data), place)
    elif recipe.rounds_of is not None and not is_finished(place):
        train_recipe(
            recipe.rounds_of, experiment, data, engine, folder, watch=watch, faults=faults, tensorboard=tensorboard
        )
        put(last_round(training_folder(folder, recipe.rounds_of)), run_spec(recipe, data), place)
    with ExitStack() as stack:
        board = stack.enter_context(TensorBoardReport(place)) if tensorboard else None

        def report(event: Event) -> None:
            watch(name, event)
            if board is not None:
                board(event)

        return train_federation(recipe, data, engine, folder=place, report=report, faults=faults)


def training_folder(folder: Path, recipe: str) -> Path:
    """Return where a run keeps the training of a recipe."""
    return folder / "training" / recipe


def _start_notes(start: Start | None, federations: Mapping[str, TrainedFederation]) -> list[str]:
    if start is None:
        return []
    found = [digest_note(start, recipe, federation) for recipe, federation in federations.items()]
    return [f"Trained weights are those of {start.name}.", *filter(None, found)]


def _copies(in_pool: int, in_domain: int) -> list[str]:
    notes = []
    if in_pool:
        notes.append(f"{in_pool} images are exact copies of others; each stays on one side of one client's split")
    if in_domain:
        notes.append(f"{in_domain} images of the other domain are in the pool too and are not used")
    return notes
