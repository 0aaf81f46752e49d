"""One benchmark run, from data to results: train what the methods need, evaluate them all, write everything down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from btfl.adapters.registry import find_method
from btfl.bench.evaluate import Evaluation, Predictions, evaluate, needed_recipes
from btfl.bench.experiment import Experiment
from btfl.bench.results import client_rows, sample_rows, write_table
from btfl.bench.saved import RECORD, RESULTS, SAMPLES, constants, describe_run
from btfl.data.partition import make_partition
from btfl.data.registry import load_source
from btfl.data.source import Source
from btfl.data.streams import Manifest, make_manifest
from btfl.data.subset import take
from btfl.engines import Event, FederatedData, LocalEngine, TrainedFederation, train_federation
from btfl.engines.base import Engine
from btfl.recipes.registry import make_recipe
from btfl.storage import write_json

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


def run_bench(
    experiment: Experiment,
    folder: str | Path,
    *,
    workers: int = 1,
    engine: Engine | None = None,
    watch: Watch | None = None,
) -> BenchRun:
    """Do everything an experiment asks for; what is already in the folder is not done again."""
    folder = Path(folder)
    watch = watch or (lambda recipe, event: None)
    source = load_source(experiment.dataset, root=experiment.root, shift=experiment.shift, **experiment.dataset_options)
    if experiment.samples is not None:
        source = take(source, experiment.samples)
    partition = make_partition(source, experiment.partition_settings(), experiment.seed)
    manifest = make_manifest(source, partition, experiment.stream_settings(), experiment.seed)
    methods = tuple(find_method(name) for name in experiment.methods)

    federations: dict[str, TrainedFederation] = {}
    for name in needed_recipes(methods):
        recipe = make_recipe(name, experiment.training_settings(), source.image_shape, len(source.classes))
        federations[name] = train_federation(
            recipe,
            FederatedData(source, partition),
            engine or LocalEngine(workers),
            folder=folder / "training" / name,
            report=partial(watch, name),
        )

    manifest.save(folder)
    record = describe_run(experiment, source, manifest, methods)
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
    return BenchRun(experiment, folder, source, manifest, rows)
