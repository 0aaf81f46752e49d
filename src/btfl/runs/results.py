"""Results on disk: tidy tables that pandas reads as they are.

``results.parquet``: one row for each (run, seed, method, client, stream). ``samples.parquet``: one row for each sample
of those. ``docs/results.md`` explains every column. The same run gives the same bytes: no time or place is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.methods.registry import Method
from btfl.storage import write_atomically

TRACED = ("e", "log_tau", "log_tau_hat", "event", "a", "b", "local_entropy", "global_entropy", "lambda_s")
"""What a method may say of a sample; NaN where it does not."""


Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one method made of one stream of one client, sample by sample."""

    method: Method
    client: int
    stream: str
    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64]
    external: NDArray[np.bool_]
    trace: Columns
    """What the method says of each sample, ``e`` for instance."""

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each prediction is right."""
        right: NDArray[np.bool_] = self.probabilities.argmax(axis=1) == self.labels
        return right


def client_rows(
    predictions: Iterable[Predictions], test_batch: int, constants: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return accuracy by method, client and stream; ``constants`` are columns that hold for the whole run."""
    rows = [
        {
            **(constants or {}),
            "method": one.method.name,
            "title": one.method.title,
            "recipe": one.method.trained_with,
            "test_batch": one.method.test_batch or test_batch,
            "client": one.client,
            "stream": one.stream,
            "samples": len(one.labels),
            "correct": int(one.right.sum()),
            "accuracy": float(one.right.mean()),
            "mean_e": float(one.trace["e"].mean()) if "e" in one.trace else np.nan,
        }
        for one in predictions
    ]
    return pd.DataFrame(rows)


def sample_rows(predictions: Iterable[Predictions], constants: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return every sample: what was predicted, whether it was right, and what the method says of it."""
    parts = []
    for one in predictions:
        predicted = one.probabilities.argmax(axis=1)
        every = np.arange(len(predicted))
        columns: dict[str, Any] = {
            **(constants or {}),
            "method": one.method.name,
            "client": one.client,
            "stream": one.stream,
            "position": every.astype(np.int32),
            "external": one.external,
            "label": one.labels.astype(np.int16),
            "predicted": predicted.astype(np.int16),
            "right": one.right,
            "confidence": one.probabilities[every, predicted],
            "true_probability": one.probabilities[every, one.labels],
        }
        for name in TRACED:
            columns[name] = one.trace[name].astype(np.float64) if name in one.trace else np.nan
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write Parquet atomically."""
    write_atomically(path, frame.to_parquet(index=False, compression="zstd"))
