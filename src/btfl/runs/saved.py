"""A run on disk: ``run.json`` says what it is; the tables beside it hold what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from btfl.errors import StorageError
from btfl.storage import read_json

KIND, VERSION = "btfl run", 1
RECORD, RESULTS, SAMPLES = "run.json", "results.parquet", "samples.parquet"


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A finished run, read back."""

    folder: Path
    record: Mapping[str, Any]
    rows: pd.DataFrame

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every sample; read when it is asked for."""
        return _read_table(self.folder / SAMPLES)

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
        """What its random choices follow from."""
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
        """What a reader must be told of it."""
        return list(self.record["notes"])


def load_run(folder: str | Path) -> SavedRun:
    """Read a finished run, or say what is missing."""
    folder = Path(folder)
    path = folder / RECORD
    if not path.exists():
        raise StorageError(f"{folder} is not a finished run: it has no {RECORD}; make one with `btfl bench`")
    record = read_json(path)
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise StorageError(f"{path} does not describe a benchmark run")
    if record.get("version") != VERSION:
        raise StorageError(
            f"{path} has format version {record.get('version')!r}; this btfl reads version {VERSION}. "
            "Run `btfl bench` again; what is trained already is not trained again"
        )
    missing = [name for name in ("run", "experiment", "training", "data", "streams", "notes") if name not in record]
    if missing:
        raise StorageError(f"{path} is incomplete: it lacks {', '.join(missing)}. Run `btfl bench` again to write it")
    return SavedRun(folder, record, _read_table(folder / RESULTS))


def _read_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist: run `btfl bench` again to write it") from None
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        raise StorageError(f"{path} is damaged: {error}") from None
