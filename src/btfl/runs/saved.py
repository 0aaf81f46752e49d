"""A run on disk: ``run.json`` says what it is; the tables beside it hold what it found."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyarrow import parquet

from btfl.errors import StorageError
from btfl.runs.layout import RunFiles
from btfl.runs.results import TRACED
from btfl.runs.schema import RunRecord, check
from btfl.storage import read_described, read_file

KIND, VERSION = "btfl run", 1
STARTED = "Trained weights are those of"
"""How the note begins that says where a run has its weights from, if it has trained none itself."""
LARGEST_TABLE = 4 << 30
"""Bytes of a table; larger ones are not read."""
_BEFORE = {"coherent": ("coherent-1", "Coherent (ours)", "Coherent 1 (ours)")}
"""What btfl 0.1.0 called otherwise: name, then name and the beginning of the title now."""
_OF_ROW = ("method", "title", "client", "stream", "samples", "accuracy")
_WORDS = ("method", "stream")
REPORTED = (
    "seed", "client", "stream", "position", "external", "right", "confidence", "true_probability", "e", "event", "a",
    "b", "lambda_s",
)  # fmt: skip
"""The columns of samples that reports are made of: to read these alone takes a fraction of the time."""


@dataclass(frozen=True, eq=False)
class _Reported:
    """What reports need of the samples: those of each method, a table without any, and the file's sha256."""

    by_method: Mapping[str, pd.DataFrame]
    none: pd.DataFrame
    sha256: str


@dataclass(frozen=True, eq=False, repr=False)
class SavedRun:
    """A finished run, read again.

    Parameters
    ----------
    folder : the run's folder
    record : what ``run.json`` says
    rows : a row for each method, client and stream (docs/results.md)
    """

    folder: Path
    record: Mapping[str, Any]
    rows: pd.DataFrame

    def __repr__(self) -> str:
        return (
            f"SavedRun({self.name}: {self.record['data']['source']}, {self.experiment['model']}, seed {self.seed}, "
            f"{self.rows['method'].nunique()} methods, {self.rows['client'].nunique()} clients)"
        )

    @property
    def has_samples(self) -> bool:
        """Whether every sample was kept, and not the rows alone."""
        return RunFiles(self.folder).samples.exists()

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every sample, read when it is asked for; what no method says is NaN, in older files too."""
        samples = _named_as_now(self.record, _read_table(RunFiles(self.folder).samples))
        return samples.assign(**{name: np.nan for name in TRACED if name not in samples})

    def samples_of(self, method: str) -> pd.DataFrame:
        """Return the samples of one method, with the columns ``REPORTED``; no rows if it was not run."""
        return self._reported.by_method.get(method, self._reported.none)

    @cached_property
    def rows_sha256(self) -> str:
        """The sha256 of the rows, as they are in memory."""
        return hashlib.sha256(self.rows.to_csv(index=False).encode()).hexdigest()

    @property
    def samples_sha256(self) -> str:
        """The sha256 of ``samples.parquet`` as it was when ``samples_of`` read it."""
        return self._reported.sha256

    @cached_property
    def _reported(self) -> _Reported:
        path = RunFiles(self.folder).samples
        content = _read(path)
        needs = ("method", *(name for name in REPORTED if name not in TRACED))
        table = _parsed(path, content, ("method", *REPORTED), needs=needs)
        table = table.assign(**{name: np.nan for name in TRACED if name in REPORTED and name not in table})
        parts = {
            _renamed(self.record, name, "").get("name", str(name)): part[list(REPORTED)]
            for name, part in table.groupby("method", sort=False, observed=True)
        }
        return _Reported(parts, table.iloc[:0][list(REPORTED)], hashlib.sha256(content).hexdigest())

    @cached_property
    def unseen(self) -> pd.DataFrame | None:
        """Rows of the clients that took no part in training, with what each brought (``level``); None: none were."""
        path = RunFiles(self.folder).unseen
        return _read_table(path, (*_OF_ROW, "level", "labels_given")) if path.exists() else None

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The settings it was run with."""
        return self.record["experiment"]  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The folder's name, by which a reader finds it."""
        return self.folder.resolve().name

    @property
    def seed(self) -> int:
        """Its random seed."""
        return int(self.experiment["seed"])

    @property
    def draw(self) -> int:
        """Which draw of the streams it is."""
        return int(self.experiment.get("draw", 0))

    @property
    def manifest_hash(self) -> str:
        """Hash of its streams."""
        return str(self.record["streams"]["hash"])

    @property
    def notes(self) -> list[str]:
        """What a reader must know of it."""
        return list(self.record["notes"])

    @property
    def has_started(self) -> bool:
        """Whether its rounds were trained by another run, or are an entry's of the zoo."""
        return any(str(note).startswith(STARTED) for note in self.notes)


def load_run(folder: str | Path) -> SavedRun:
    """Read a finished run, or say what is missing.

    Example: ``load_run("runs/demo").rows.groupby("title")["accuracy"].mean()``
    """
    files = RunFiles(Path(folder))
    path = files.record
    if not path.exists():
        raise StorageError(f"{folder} is not a finished run: it has no {path.name}; make one with `btfl bench`")
    needs = ("run", "experiment", "training", "data", "streams", "notes")
    again = "Run `btfl bench` again; what is trained already is not trained again"
    record = read_described(path, KIND, VERSION, needs, again)
    check(RunRecord, record, path)
    rows = _named_as_now(record, _read_table(files.results, _OF_ROW))
    described = [{**one, **_renamed(record, one.get("name"), one.get("title"))} for one in record.get("methods", ())]
    return SavedRun(files.folder, {**record, "methods": described} if described else record, rows)


def _renamed(record: Mapping[str, Any], name: object, title: object) -> dict[str, str]:
    """Return name and title of a method that btfl 0.1.0 knew by another name; empty if it is called the same."""
    if record.get("btfl") != "0.1.0" or not (isinstance(name, str) and isinstance(title, str)):
        return {}
    base, bracket, settings = name.partition("[")
    if base not in _BEFORE:
        return {}
    new, old_title, new_title = _BEFORE[base]
    return {"name": f"{new}{bracket}{settings}", "title": title.replace(old_title, new_title, 1)}


def _named_as_now(record: Mapping[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the names that its methods have now."""
    pairs = table[["method", "title"]].drop_duplicates() if "title" in table else table[["method"]].drop_duplicates()
    for pair in pairs.to_dict("records"):
        changes = _renamed(record, pair["method"], pair.get("title", ""))
        if changes:
            here = table["method"] == pair["method"]
            table.loc[here, "method"] = changes["name"]
            if "title" in table:
                table.loc[here, "title"] = changes["title"]
    return table


def _read_table(path: Path, needs: Sequence[str] = ()) -> pd.DataFrame:
    return _parsed(path, _read(path), needs=needs)


def _read(path: Path) -> bytes:
    if not path.exists():
        raise StorageError(f"{path} does not exist: run `btfl bench` again to write it")
    return read_file(path, LARGEST_TABLE)


def _parsed(
    path: Path, content: bytes, columns: Sequence[str] | None = None, *, needs: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a table from the bytes of its file: all of it, or these columns where they are there, words as codes."""
    try:
        if columns is None:
            table = pd.read_parquet(io.BytesIO(content))
        else:
            file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=list(_WORDS))
            there = [name for name in columns if name in file.schema_arrow.names]
            table = file.read(there).to_pandas()
    except Exception as error:  # a damaged file may lead pyarrow and pandas to any of theirs
        raise StorageError(f"{path} is damaged: {error}") from None
    if missing := [name for name in needs if name not in table]:
        raise StorageError(f"{path} is damaged: it lacks the column {', '.join(missing)}")
    return table
