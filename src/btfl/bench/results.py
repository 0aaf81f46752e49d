"""Results on disk: tidy tables that pandas reads as they are.

``results.parquet``: one row for each (method, client, stream). ``samples.parquet``: one row for each sample of those.
``docs/results.md`` explains every column.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from btfl.bench.evaluate import Predictions
from btfl.data.streams import STREAMS

_TRACED = ("e", "log_tau", "log_tau_hat", "event", "a", "b", "local_entropy", "global_entropy", "lambda_s")


def client_rows(predictions: Iterable[Predictions]) -> pd.DataFrame:
    """Give accuracy by method, client and stream."""
    return pd.DataFrame(
        [
            {
                "method": one.method.name,
                "title": one.method.title,
                "client": one.client,
                "stream": one.stream,
                "samples": len(one.labels),
                "correct": int(one.right.sum()),
                "accuracy": float(one.right.mean()),
                "mean_e": float(one.trace["e"].mean()) if "e" in one.trace else np.nan,
            }
            for one in predictions
        ]
    )


def sample_rows(predictions: Iterable[Predictions]) -> pd.DataFrame:
    """Give every sample: what was predicted, whether it was right, and what the method says of it."""
    parts = []
    for one in predictions:
        predicted = one.probabilities.argmax(axis=1)
        columns = {
            "method": one.method.name,
            "client": one.client,
            "stream": one.stream,
            "position": np.arange(len(one.labels), dtype=np.int32),
            "external": one.external,
            "label": one.labels.astype(np.int16),
            "predicted": predicted.astype(np.int16),
            "confidence": one.probabilities[np.arange(len(predicted)), predicted],
            "right": one.right,
        }
        for name in _TRACED:
            columns[name] = one.trace[name].astype(np.float64) if name in one.trace else np.nan
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write Parquet atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    frame.to_parquet(temporary, index=False, compression="zstd")
    temporary.replace(path)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Give the table people look at: accuracy in % by method and stream, their average, and the mean of e.

    Each client counts the same, however many samples it has.
    """
    order = list(dict.fromkeys(rows["title"]))
    accuracy = rows.pivot_table(index="title", columns="stream", values="accuracy", aggfunc="mean") * 100
    table = accuracy.reindex(index=order, columns=list(STREAMS))
    table["average"] = table.mean(axis=1)
    table["mean_e"] = rows.groupby("title")["mean_e"].mean().reindex(order)
    return table
