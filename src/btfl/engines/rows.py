"""Uploads of one round as rows of a table: in memory while they are few, then in a file without a name."""

from __future__ import annotations

import math
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
IN_MEMORY = 2**28
"""Bytes of uploads that are kept in memory; the rest goes to a temporary file, which ends with the round."""
_BLOCK = 2**22  # numbers that are looked at together
_GLANCE = 1024  # numbers by which most rows that are not near each other are told apart


class Rows:
    """Arrays of the same names and shapes, one row for each client."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._names: list[tuple[str, tuple[int, ...]]] = []
        self._rows: list[NDArray[Any]] = []
        self._left = in_memory
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add one client's arrays; what is added has been checked before."""
        if not self._names:
            self._names = [(name, array.shape) for name, array in sorted(arrays.items())]
        parts = [np.ravel(arrays[name]) for name, _ in self._names]
        row = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        self._left -= row.nbytes
        self._rows.append(row if self._left >= 0 or not row.size else self._on_disk(row))

    def _on_disk(self, row: NDArray[Any]) -> NDArray[Any]:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the rows do
            weakref.finalize(self, self._file.close)
        start = self._file.seek(0, 2)
        self._file.write(row.tobytes())
        self._file.flush()
        return np.memmap(self._file, row.dtype, "r", start, row.shape)

    def arrays(self, place: int) -> dict[str, NDArray[Any]]:
        """Return one client's arrays by name, as they were added."""
        return self.unravel(self._rows[place])

    def unravel(self, row: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return a row as arrays by name."""
        found, start = {}, 0
        for name, shape in self._names:
            size = int(np.prod(shape))
            found[name] = row[start : start + size].reshape(shape)
            start += size
        return found

    def blocks(self, places: Sequence[int], centre: Mapping[str, NDArray[Any]]) -> Iterator[Floats]:
        """Return the rows less ``centre``, as (rows, columns) numbers, some columns at a time."""
        width = self._rows[0].size if self._rows else 0
        middle = self._row_of(centre)
        step = max(_BLOCK // max(len(places), 1), 1)
        for start in range(0, width, step):
            part = slice(start, min(start + step, width))
            block = np.stack([np.asarray(self._rows[place][part], dtype=np.float64) for place in places])
            block -= middle[part]
            yield block

    def gram(self, places: Sequence[int], centre: Mapping[str, NDArray[Any]]) -> Floats:
        """Return the (rows, rows) products of all rows less ``centre`` with each other.

        Added up without a matrix product: the linear algebra library may add in another order with more threads.
        """
        products = np.zeros((len(places), len(places)))
        for block in self.blocks(places, centre):
            products += np.einsum("ic,jc->ij", block, block)
        return products

    def paths(self, centre: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats]:
        """Return how far each row less ``centre`` goes along ``centre``, and how long it is.

        The first is the product with ``centre`` divided by the length of ``centre``; 0 where that is 0.
        """
        middle = self._row_of(centre)
        size = float(np.sqrt(np.vecdot(middle, middle)))
        along, lengths = np.zeros(len(self._rows)), np.zeros(len(self._rows))
        for place, row in enumerate(self._rows):
            step = np.asarray(row, dtype=np.float64) - middle
            lengths[place] = float(np.sqrt(np.vecdot(step, step)))
            along[place] = float(np.vecdot(step, middle)) / size if size > 0 else 0.0
        return along, lengths

    def cut(self, place: int, centre: Mapping[str, NDArray[Any]], along: float, across: float) -> None:
        """Shorten a row less ``centre`` to so much along ``centre``, and so much across it, if it is longer."""
        row, middle = self._rows[place], self._row_of(centre)
        unit = middle / max(float(np.sqrt(np.vecdot(middle, middle))), np.finfo(np.float64).tiny)
        step = np.asarray(row, dtype=np.float64) - middle
        forth = float(np.vecdot(step, unit))
        aside = step - forth * unit
        length = float(np.sqrt(np.vecdot(aside, aside)))
        forth *= min(1.0, along / abs(forth)) if forth else 1.0
        aside *= min(1.0, across / length) if length else 1.0
        self._rows[place] = (middle + forth * unit + aside).astype(row.dtype)

    def near(self, one: int, other: int, reach: float) -> bool:
        """Return whether two rows are nearer to each other than ``reach``; a few numbers tell for most that are not."""
        for part in (slice(_GLANCE), slice(None)):
            apart = np.asarray(self._rows[one][part], dtype=np.float64) - self._rows[other][part]
            if float(np.sqrt(np.vecdot(apart, apart))) >= reach:
                return False
        return True

    def _row_of(self, arrays: Mapping[str, NDArray[Any]]) -> Floats:
        """Return arrays as a row; one that is not there is zero: a recipe may add arrays to those it began with."""
        parts = [
            np.ravel(arrays[name]) if name in arrays else np.zeros(math.prod(shape)) for name, shape in self._names
        ]
        return np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)
