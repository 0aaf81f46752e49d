"""A table in a Parquet or CSV file: one sample a row, one feature a column.

The label is one column, text or whole numbers: the different values, sorted, are the classes. Another column can say
whose each row is (``partition = "natural"`` uses it), and another the order of the rows, a time for example; without
one the file's own order is kept. Every other column of numbers or truth values is a feature; text is left out, and so
are columns of a CSV without a name: pandas writes its row numbers so, which give labels away where rows are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import as_values
from btfl.data.source import Samples, Source, without_shift
from btfl.errors import DataError, InputError, UnknownNameError, listed

if TYPE_CHECKING:
    import pandas as pd

CLIENT = "client"
_ROWS = 20_000  # that are in memory in the file's own form at a time


def load(
    *,
    root: Path | None = None,
    shift: str | Path | None = None,
    label: str = "label",
    client: str | None = None,
    order: str | None = None,
) -> Source:
    """Load a table.

    Parameters
    ----------
    root : a Parquet or CSV file
    shift : another such file with the same columns, the other domain; or "none"
    label : name of the column with the classes
    client : name of the column that says whose a row is; ``client`` if there is one and no other is named
    order : name of a column to sort the rows by
    """
    if root is None:
        raise InputError("table needs the path of a Parquet or CSV file as root")
    table = _Table(root, label, client, order)
    values, labels, owners = table.read()
    classes, index = _distinct(labels, root, label)
    notes = table.notes()
    shifted = None
    if shift is not None and str(shift).lower() != "none":
        shifted = _other(Path(shift), table, classes)
    else:
        notes.append(without_shift("vectors"))
    owner_names, of_owner = (None, None) if owners is None else _distinct(owners, root, table.client or CLIENT)
    return Source(
        name=root.stem,
        classes=classes,
        pool=Samples(values, index),
        shifted=shifted,
        shift_name=None if shifted is None or shift is None else Path(shift).stem,
        owners=of_owner,
        owner_names=owner_names or (),
        named_after_files=frozenset({"name", "shift_name"}),
        notes=tuple(notes),
    )


class _Table:
    """One file, and which of its columns are what."""

    def __init__(self, path: Path, label: str, client: str | None, order: str | None) -> None:
        self.path, self.label, self.order = path, label, order
        if not path.is_file():
            raise DataError(f"{path} is a folder, not a table" if path.is_dir() else f"there is no file {path}")
        first = next(_parts(path), None)
        if first is None or len(first) == 0:
            raise DataError(f"{path.name} holds no row")
        columns = list(first.columns)
        _check_separated(path, columns)
        for name in (label, client, order):
            if name is not None and name not in columns:
                raise UnknownNameError(f"column of {path.name}", str(name), columns)
        self.client = client or (CLIENT if CLIENT in columns else None)
        told = {name for name in (label, self.client, order) if name is not None}
        numeric = {name for name in columns if first[name].dtype.kind in "iufb"}
        nameless = {f"Unnamed: {place}" for place in range(len(columns))}  # so pandas calls them
        self.nameless = [name for name in columns if name not in told and name in nameless]
        self.features = [name for name in columns if name not in told | nameless and name in numeric]
        self.passed_over = [name for name in columns if name not in told | nameless and name not in numeric]
        if not self.features:
            raise DataError(f"{path.name} has no column of numbers beside {listed(sorted(told))}")

    def read(self) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any] | None]:
        """Return features (n, d), labels (n,) and owners (n,) or None, a part of the file at a time."""
        every, kept = np.empty((_count(self.path), len(self.features)), np.float32), dict[str, list[NDArray[Any]]]()
        wanted = [name for name in (self.label, self.client, self.order) if name is not None]
        start = 0
        for part in _parts(self.path):
            every[start : start + len(part)] = self._features(part, start)
            for name in wanted:
                kept.setdefault(name, []).append(_whole(part, name, self.path, start))
            start += len(part)
        columns = {name: np.concatenate(parts) for name, parts in kept.items()}
        if self.order is not None:
            rows = np.argsort(columns[self.order], kind="stable")
            every, columns = every[rows], {name: column[rows] for name, column in columns.items()}
        return every, columns[self.label], None if self.client is None else columns[self.client]

    def notes(self) -> list[str]:
        """Say what was left out."""
        notes = []
        if self.nameless:
            notes.append(f"{len(self.nameless)} columns without a name (row numbers, perhaps) are left out")
        if self.passed_over:
            left_out = listed(self.passed_over)
            notes.append(f"{len(self.passed_over)} columns that hold no numbers are left out: {left_out}")
        return notes

    def _features(self, part: pd.DataFrame, start: int) -> NDArray[np.float32]:
        features = np.empty((len(part), len(self.features)), np.float32)
        for place, name in enumerate(self.features):
            if name not in part or part[name].dtype.kind not in "iufb":
                raise DataError(f"{self.path.name}: the column '{name}' begins with numbers and goes on otherwise")
            try:
                features[:, place] = as_values(part[name].to_numpy()[:, None])[:, 0]
            except DataError as error:
                raise DataError(f"{self.path.name}, column '{name}': {error}") from None
        if not np.isfinite(features).all():
            row, place = np.argwhere(~np.isfinite(features))[0].tolist()
            raise DataError(
                f"{self.path.name}: the column '{self.features[place]}' is empty, NaN or infinite in row "
                f"{start + row:,} (the first is 0); leave such rows out or fill them in"
            )
        return features


def _count(path: Path) -> int:
    """Return the number of rows, to make room for them once."""
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    return sum(len(part) for part in _parts(path))


def _parts(path: Path) -> Iterator[pd.DataFrame]:
    """Read a file part by part, so that it is in memory once."""
    import pandas as pd

    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            import pyarrow as pa
            import pyarrow.parquet as pq

            # No reading ahead, and nothing kept in the pool: both would take as much memory as the whole file.
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(_ROWS, use_threads=False):
                    yield batch.to_pandas()
            pa.default_memory_pool().release_unused()
        elif path.suffix.lower() in (".csv", ".tsv"):
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            with pd.read_csv(path, sep=separator, chunksize=_ROWS) as file:
                yield from file
        else:
            raise InputError(f"{path.name}: a table is a file that ends in .parquet, .pq, .csv or .tsv")
    except (ValueError, OSError, UnicodeError) as error:
        if isinstance(error, InputError | DataError):
            raise
        kind = "no table" if path.stat().st_size else "empty, or no table"
        raise DataError(f"{path.name} is {kind} that can be read: {error}") from None


def _check_separated(path: Path, columns: list[str]) -> None:
    """Refuse a file that was read as one column because something else than expected is between its values."""
    other = next((mark for mark in (";", "\t", "|", ",") if len(columns) == 1 and mark in columns[0]), None)
    if other is not None:
        raise DataError(
            f"{path.name} has {other!r} between its columns; btfl reads .csv with commas and .tsv with tabs: "
            f"write it so, or as .parquet"
        )


def _whole(part: pd.DataFrame, name: str, path: Path, start: int) -> NDArray[Any]:
    """Return a column that has a value in every row."""
    if name not in part:
        raise DataError(f"{path.name}: the column '{name}' is missing in a part of the file")
    missing = part[name].isna().to_numpy()
    if missing.any():
        read_so = "" if path.suffix.lower() in (".parquet", ".pq") else "; the words NA, None, null and nan are read so"
        row = f"{start + int(missing.argmax()):,} (the first is 0)"
        raise DataError(f"{path.name}: the column '{name}' is empty in row {row}{read_so}")
    column = part[name].to_numpy()
    return column if column.dtype.kind in "iufbM" else column.astype(str)


def _distinct(column: NDArray[Any], path: Path, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the different values of a column as names, sorted, and which of them each row has."""
    if column.dtype.kind == "f":
        if not np.array_equal(column, np.rint(column)):
            raise DataError(f"{path.name}: the column '{name}' must hold text or whole numbers, not fractions")
        column = column.astype(np.int64)
    found, index = np.unique(column, return_inverse=True)
    return tuple(str(value) for value in found.tolist()), index.reshape(-1).astype(np.int64)


def _other(path: Path, table: _Table, classes: tuple[str, ...]) -> Samples:
    other = _Table(path, table.label, None, None)
    if missing := [name for name in table.features if name not in other.features]:
        raise DataError(f"{path.name} lacks the columns {listed(missing)} of {table.path.name}")
    other.features, other.client = table.features, None
    values, labels, _ = other.read()
    names, index = _distinct(labels, path, table.label)
    if strange := [name for name in names if name not in classes]:
        raise DataError(f"{path.name}: its classes {listed(strange, 10)} are none of {listed(classes, 10)}")
    return Samples(values, np.array([classes.index(name) for name in names], dtype=np.int64)[index])
