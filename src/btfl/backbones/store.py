"""Features on disk, by the content of what they were computed from.

A folder of safetensors files, each with rows and their keys, written once and named by its own sha256: processes can
add to it side by side, and a damaged file is noticed, left out and computed again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from btfl.errors import StorageError
from btfl.storage import read_file, write_atomically

log = logging.getLogger(__name__)

Rows = NDArray[np.float32]
KEY = 32  # bytes
_SUFFIX = ".safetensors"
_LARGEST = 1 << 30


class FeatureStore:
    """Rows of features (d,) by key, in a folder.

    Parameters
    ----------
    folder : of one backbone; it need not exist yet
    dimensions : the feature size d
    """

    def __init__(self, folder: Path, dimensions: int) -> None:
        self.folder, self.dimensions = folder, dimensions
        self._places: dict[bytes, tuple[str, int]] = {}  # key -> file, row
        self._files: set[str] = set()

    def __len__(self) -> int:
        self._look()
        return len(self._places)

    def find(self, keys: Sequence[bytes]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return rows (n, d) for keys, and which of them are there; the others are zeros."""
        self._look()
        rows, there = np.zeros((len(keys), self.dimensions), np.float32), np.zeros(len(keys), np.bool_)
        wanted: dict[str, list[tuple[int, int]]] = {}
        for place, key in enumerate(keys):
            if key in self._places:
                file, row = self._places[key]
                wanted.setdefault(file, []).append((place, row))
        for file, pairs in wanted.items():
            content = self._read(file)
            if content is not None:
                places, numbers = np.array(pairs).T
                rows[places], there[places] = content[1][numbers], True
        return rows, there

    def add(self, keys: Sequence[bytes], rows: Rows) -> None:
        """Add rows (n, d) with their keys, as one file."""
        arrays: dict[str, NDArray[Any]] = {
            "keys": np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), KEY),
            "features": rows,
        }
        content = save(arrays)
        name = hashlib.sha256(content).hexdigest()
        write_atomically(self.folder / f"{name}{_SUFFIX}", content)
        self._note(name, keys)

    def _look(self) -> None:
        """Read the keys of files that were not there before."""
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            if path.stem not in self._files:
                content = self._read(path.stem)
                if content is not None:
                    self._note(path.stem, map(bytes, content[0]))

    def _note(self, file: str, keys: Iterable[bytes]) -> None:
        self._files.add(file)
        for row, key in enumerate(keys):
            self._places.setdefault(key, (file, row))

    def _read(self, file: str) -> tuple[NDArray[np.uint8], Rows] | None:
        """Return the keys and rows of a file; one that is damaged is deleted, with a warning, and nothing returned."""
        path = self.folder / f"{file}{_SUFFIX}"
        try:
            content = read_file(path, _LARGEST)
            if hashlib.sha256(content).hexdigest() != file:
                raise StorageError("its content is not what was written")
            arrays = load(content)
            return arrays["keys"], arrays["features"]
        except (StorageError, SafetensorError, KeyError) as error:
            log.warning("cached features in %s are damaged and computed again: %s", path, error)
            with suppress(OSError):
                path.unlink()
            self._files.discard(file)
            self._places = {key: place for key, place in self._places.items() if place[0] != file}
            return None
