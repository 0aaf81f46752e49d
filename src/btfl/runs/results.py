"""Results as tidy tables that pandas reads as they are.

``results.parquet``: one row for each (run, seed, method, client, stream). ``samples.parquet``: one row for each sample
of those. ``docs/results.md`` explains every column. The same run gives the same bytes: no time or place is in them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.methods.registry import Variant
from btfl.storage import replacing_file, write_atomically

OF_SAMPLE = (
    "run", "seed", "method", "client", "stream", "position", "external", "label", "predicted", "right", "confidence",
    "true_probability",
)  # fmt: skip
"""Columns of ``samples.parquet`` that the benchmark fills in itself."""
TRACED = ("e", "log_tau", "log_tau_hat", "event", "a", "b", "local_entropy", "global_entropy", "lambda_s")
"""Columns that are always there, after those; further ones that methods declare follow, sorted by name."""

_ROWS_AT_ONCE = 250_000  # of samples, in memory before they are written

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one method predicted on one stream of one client, sample by sample.

    Parameters
    ----------
    method, client, stream : what was run on what
    probabilities : (n, classes)
    labels : (n,), the true classes
    external : (n,), whether each sample comes from another client
    trace : columns of (n,) numbers that the method says of each sample, ``e`` for instance
    seconds : how long the method took; no part of any result
    """

    method: Variant
    client: int
    stream: str
    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64]
    external: NDArray[np.bool_]
    trace: Columns
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, values in self.trace.items():
            if name in OF_SAMPLE:
                raise InputError(
                    f"method '{self.method.name}' has a trace column '{name}', which the results have already: "
                    "choose another name"
                )
            if values.shape != (len(self.labels),) or values.dtype.kind not in "biuf":
                raise InputError(
                    f"method '{self.method.name}': the trace column '{name}' must hold a number for each of "
                    f"{len(self.labels)} samples, not {values.dtype} of shape {values.shape}"
                )

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, (n,)."""
        right: NDArray[np.bool_] = self.probabilities.argmax(axis=1) == self.labels
        return right


def client_rows(
    predictions: Iterable[Predictions], test_batch: int, constants: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return accuracy by method, client and stream.

    Parameters
    ----------
    predictions : a row is made of each
    test_batch : samples at a time of methods that say nothing else
    constants : columns that are the same for the whole run
    """
    return pd.DataFrame([client_row(one, test_batch, constants) for one in predictions])


def client_row(one: Predictions, test_batch: int, constants: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return one row of ``client_rows``."""
    return {
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


def sample_rows(predictions: Sequence[Predictions], constants: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return every sample: what was predicted, whether it was right, and all that any method says of it.

    A column that only some methods have is NaN for the others.
    """
    more = sorted({name for one in predictions for name in one.trace} - {*TRACED})
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
        for name in (*TRACED, *more):
            columns[name] = one.trace[name].astype(np.float64) if name in one.trace else np.nan
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


class SampleTable:
    """``samples.parquet``, written while clients are evaluated: memory does not grow with their number.

    Use it in a ``with`` block; the file is there when the block ends well, and as it was before otherwise.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._waiting, self._rows = path, list[pd.DataFrame](), 0
        self._stack = ExitStack()
        self._writer: Any = None

    def __enter__(self) -> SampleTable:
        return self

    def add(self, samples: pd.DataFrame) -> None:
        """Add rows that ``sample_rows`` made, of the same methods each time."""
        self._waiting.append(samples)
        self._rows += len(samples)
        if self._rows >= _ROWS_AT_ONCE:
            self._flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None and self._writer is None:
            write_table(pd.concat(self._waiting, ignore_index=True), self._path)
            return
        if kind is None:
            self._flush()
        self._stack.__exit__(kind, error, trace)

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._waiting:
            return
        table = pa.Table.from_pandas(pd.concat(self._waiting, ignore_index=True), preserve_index=False)
        if self._writer is None:
            temporary = self._stack.enter_context(replacing_file(self._path))
            self._writer = self._stack.enter_context(pq.ParquetWriter(temporary, table.schema, compression="zstd"))
        self._writer.write_table(table)
        self._waiting, self._rows = [], 0


def write_clients(path: Path, names: Sequence[str], parts: Iterable[Mapping[str, int]]) -> None:
    """Write the names of natural clients and the sizes of their parts as CSV, atomically: a row for each client.

    Names may be of people, so they are in this file alone, which no report reads.
    """
    frame = pd.DataFrame({"client": range(len(names)), "name": names}).join(pd.DataFrame(list(parts)))
    write_atomically(path, frame.to_csv(index=False, lineterminator="\n").encode())


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as Parquet, atomically."""
    content = io.BytesIO()
    frame.to_parquet(content, index=False, compression="zstd")
    write_atomically(path, content.getvalue())
