"""Results that are in a run's folder already: other methods of the same experiment are added to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from btfl.benchmark.record import constants
from btfl.data.manifest import Manifest
from btfl.errors import InputError, StorageError, listed
from btfl.experiments.experiment import Experiment
from btfl.runs.layout import RunFiles
from btfl.runs.results import OF_SAMPLE, TRACED
from btfl.runs.saved import SavedRun, load_run

_MAY_DIFFER = {"methods", "notes", "root"}
_OTHERWISE = "Name another folder with --out, or replace them with --overwrite"


def find_earlier(folder: Path, experiment: Experiment, manifest: Manifest) -> SavedRun | None:
    """Return the finished run in a folder, None if there is none; one of another experiment is an error.

    Parameters
    ----------
    folder : of the run
    experiment, manifest : what is to be run there, and on which streams
    """
    if not RunFiles(folder).record.exists():
        return None
    try:
        earlier = load_run(folder)
        before = Experiment(**earlier.experiment)
        other = [name for name, value in experiment if name not in _MAY_DIFFER and value != getattr(before, name)]
        if earlier.record["data"]["fingerprint"] != manifest.source_fingerprint:
            other.append("the images")
        elif earlier.manifest_hash != manifest.hash and not Manifest.load(folder).same_streams(manifest):
            other.append("the streams")
        methods = list(earlier.rows["method"].unique())
    except (StorageError, ValidationError, LookupError, TypeError) as error:
        raise StorageError(f"{folder} has results that cannot be added to: {error}. {_OTHERWISE}") from None
    if other:
        raise InputError(
            f"{folder} has results of another experiment ({listed(other)} differ), and those of {listed(methods, 12)} "
            f"would be lost. {_OTHERWISE}"
        )
    return earlier


def joined(experiment: Experiment, earlier: SavedRun) -> Experiment:
    """Return the experiment with the methods and notes of the earlier run, which come first."""
    before = Experiment(**earlier.experiment)
    both = {name: [*getattr(before, name), *getattr(experiment, name)] for name in ("methods", "notes")}
    return experiment.model_copy(update={name: tuple(dict.fromkeys(values)) for name, values in both.items()})


def add_rows(earlier: SavedRun, rows: pd.DataFrame, record: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of both runs, as one run of all methods would have ordered them; of both, the new ones."""
    return _add(earlier.rows, rows, constants(record))


def add_samples(earlier: SavedRun, samples: pd.DataFrame, record: Mapping[str, Any]) -> pd.DataFrame:
    """Return the samples of both runs, ordered likewise."""
    if not earlier.has_samples:
        return samples
    every = _add(earlier.samples, samples, {"run": record["run"]})
    return every[[*OF_SAMPLE, *TRACED, *sorted({*every.columns} - {*OF_SAMPLE, *TRACED})]]


def add_record(earlier: SavedRun, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``run.json`` says of both runs: the earlier methods are described as they were."""
    described = {one["name"]: one for one in (*earlier.record.get("methods", ()), *record["methods"])}
    back = tuple(f"{one['title']} is left out" for one in record["methods"])  # whose training failed before
    notes = dict.fromkeys([*record["notes"], *(note for note in earlier.notes if not note.startswith(back))])
    return {**record, "methods": list(described.values()), "notes": list(notes)}


def _add(before: pd.DataFrame, now: pd.DataFrame, same: Mapping[str, Any]) -> pd.DataFrame:
    order = {name: place for place, name in enumerate(dict.fromkeys([*before["method"], *now["method"]]))}
    kept = before[~before["method"].isin(now["method"].unique())].assign(**same)
    every = pd.concat([kept, now], ignore_index=True) if len(kept) else now
    return every.sort_values(
        ["client", "method"], key=lambda column: column.map(order) if column.name == "method" else column, kind="stable"
    ).reset_index(drop=True)
