"""Runs for the report's tests: real records and tables, made from drawn predictions instead of training."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from btfl.benchmark.record import constants, describe_run
from btfl.data.catalogue import load_source
from btfl.data.manifest import SWITCHING
from btfl.data.partition import make_partition
from btfl.data.source import Source
from btfl.data.streams import STREAMS, make_manifest
from btfl.experiments.experiment import make_experiment
from btfl.methods.registry import find_method
from btfl.runs.layout import RunFiles
from btfl.runs.results import Predictions, client_rows, sample_rows, write_table
from btfl.storage import write_json

CLASSES = 10
METHODS = ("fedavg", "fedavg-ft", "personal", "fedthe", "btfl", "btfl-release", "oracle")
SKILL = {"fedavg": 0.6, "fedavg-ft": 0.58, "personal": 0.5, "fedthe": 0.66, "btfl": 0.7, "oracle": 0.9}
TELLS_E = ("fedthe", "btfl", "btfl-release", "oracle")


@cache
def digit_images() -> Source:
    return load_source("digits")


def make_run(folder: Path, *, length: int = 40, skill: dict[str, float] | None = None, **settings: Any) -> Path:
    """Write a run folder as ``run_bench`` would."""
    values = {"name": "made", "model": "mlp", "clients": 4, "methods": METHODS, "training": {"rounds": 2}, **settings}
    experiment = make_experiment(values)
    source = digit_images() if experiment.shift is None else load_source("digits", shift=experiment.shift)
    partition = make_partition(source, experiment.partition_settings(), experiment.seed)
    manifest = make_manifest(source, partition, experiment.stream_settings(), experiment.stream_seed)
    methods = tuple(find_method(name) for name in experiment.methods)
    record = describe_run(experiment, source, manifest, methods)
    rng = np.random.default_rng(experiment.stream_seed)
    predictions = [
        _predictions(name, client, stream, length, {**SKILL, **(skill or {})}, rng)
        for client in range(len(partition))
        for name in experiment.methods
        for stream in (*STREAMS, *([SWITCHING] if name in TELLS_E else []))
    ]
    write_table(client_rows(predictions, experiment.test_batch, constants(record)), RunFiles(folder).results)
    of_run = {"run": record["run"], "seed": experiment.seed}
    write_table(sample_rows(predictions, of_run), RunFiles(folder).samples)
    write_json(RunFiles(folder).record, record)
    return folder


def _predictions(
    name: str, client: int, stream: str, count: int, skill: dict[str, float], rng: np.random.Generator
) -> Predictions:
    labels = rng.integers(CLASSES, size=count)
    external = _external(stream, count, rng)
    likely = skill.get(name, 0.55) - 0.15 * stream.startswith("shifted") + rng.normal(0, 0.04)
    chosen = np.where(rng.random(count) < likely, labels, rng.integers(CLASSES, size=count))
    confidence = rng.uniform(0.4, 1.0, size=count)
    probabilities = np.repeat((1 - confidence)[:, None] / (CLASSES - 1), CLASSES, axis=1)
    probabilities[np.arange(count), chosen] = confidence
    trace: dict[str, Any] = {}
    if name in TELLS_E:
        trace["e"] = np.clip(0.25 + 0.5 * external + rng.normal(0, 0.2, count), 0.0, 1.0)
    if name.startswith("fedthe"):
        trace["lambda_s"] = rng.uniform(0.2, 0.8, size=count)
    if name.startswith("btfl"):
        event = np.where(rng.random(count) < 0.3, np.where(external, 1, -1), 0)
        counted = {"a": 1.0 + np.cumsum(event == 1) % 12, "b": 1.0 + np.cumsum(event == -1) % 12}
        small = {key: rng.normal(size=count) for key in ("log_tau", "log_tau_hat")}
        entropies = {key: rng.uniform(0, 2, size=count) for key in ("local_entropy", "global_entropy")}
        trace |= {"event": event, **counted, **small, **entropies}
    return Predictions(find_method(name), client, stream, probabilities, labels, external, trace)


def _external(stream: str, count: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if stream == SWITCHING:
        place = np.arange(count)
        return (place >= count // 4) & (place < 3 * count // 4)
    if stream == "synthetical":
        return rng.permutation(np.arange(count) % 2 == 0)
    return np.full(count, stream.endswith("_exd"))
