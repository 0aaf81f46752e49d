"""What ``run.json`` holds: everything needed to trace a number, and no time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from btfl import __version__
from btfl.data.partition import PartitionSettings
from btfl.data.source import Source
from btfl.data.streams import Manifest
from btfl.experiments.experiment import Experiment
from btfl.methods.registry import Variant
from btfl.runs.saved import KIND, VERSION

_LATER: Mapping[str, Any] = {
    "draw": 0,
    "fewest": PartitionSettings().fewest,
    "held_out": PartitionSettings().held_out,
    "standardise": True,
    "backbone": None,
    "backbone_size": None,
}
"""Settings that came after the first runs were named, and what those runs had."""


def run_id(experiment: Experiment) -> str:
    """Name a run by what it is: name, seed, and a hash of every setting but the place of the data."""
    silent = {"root", *(name for name, before in _LATER.items() if getattr(experiment, name) == before)}
    settings = json.dumps(experiment.model_dump(mode="json", exclude=silent), sort_keys=True)
    return f"{experiment.name}-s{experiment.seed}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def describe_run(
    experiment: Experiment,
    source: Source,
    manifest: Manifest,
    methods: tuple[Variant, ...],
    notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what ``run.json`` holds.

    Parameters
    ----------
    experiment, source, manifest, methods : what was run, on which images and streams
    notes : what a reader must know beside the notes of the experiment and the source
    """
    left_out = {"left_out": list(manifest.left_out_streams)} if manifest.left_out_streams else {}
    return {
        "kind": KIND,
        "version": VERSION,
        "btfl": __version__,
        "run": run_id(experiment),
        "experiment": experiment.model_dump(mode="json"),
        "training": experiment.training_settings().as_dict(),
        "data": {
            "source": source.name,
            "kind": source.kind,
            "images": len(source.pool),
            "classes": len(source.classes),
            "clients": len(manifest.clients),
            "image_shape": list(source.sample_shape),
            "fingerprint": manifest.source_fingerprint,
            "shift": manifest.shift_name,
            "shift_fingerprint": manifest.shift_fingerprint,
        },
        "streams": {"hash": manifest.hash, "seed": manifest.seed, **manifest.settings.as_dict(), **left_out},
        "notes": [*experiment.notes, *source.notes, *notes],
        **_privacy(experiment),
        "methods": [_describe_method(method, experiment.test_batch) for method in methods],
    }


def _privacy(experiment: Experiment) -> dict[str, Any]:
    promise = experiment.training_settings().promise()
    return {"privacy": promise} if promise else {}


def constants(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of ``results.parquet`` that are the same for the whole run."""
    experiment, data = record["experiment"], record["data"]
    return {
        "run": record["run"],
        "seed": experiment["seed"],
        "dataset": data["source"],
        "shift": data["shift"] or "none",
        "model": experiment["model"],
        "partition": experiment["partition"],
        "alpha": float(experiment["alpha"]),
        "split": experiment["split"],
        "manifest": record["streams"]["hash"],
    }


def _describe_method(variant: Variant, test_batch: int) -> dict[str, Any]:
    method, card = variant.method, variant.card
    return {
        "name": variant.name,
        "title": variant.title,
        "method": f"{method.__module__}:{method.__qualname__}",
        "settings": dict(variant.settings),
        "recipe": variant.trained_with,
        "global_head": variant.global_head,
        "takes": method.takes,
        "steps_after_rounds": variant.steps_after_rounds,
        "paper": card.paper,
        "summary": card.summary,
        "colour": card.colour,
        "marker": card.marker,
        "line": card.line,
        "columns": {name: column.help for name, column in method.columns.items()},
        "test_batch": variant.test_batch or test_batch,
    }
