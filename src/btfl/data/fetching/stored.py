"""The one plain form in which a fetched dataset is kept, wherever it came from: npy arrays with pinned hashes.

A folder holds one npy file for each part and a ``manifest.json``. What the data must be is pinned in code
(the sha256 of each part); the manifest only adds checksums of a hundred blocks of each part, which tell where
a file is damaged, and a damaged file from another one.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import DataError, StorageError
from btfl.storage import read_json, replacing_folder, write_json

MANIFEST = "manifest.json"
FORMAT = 1
BLOCKS = 100
DAMAGED_AT_MOST = 0.2  # of the blocks differing is damage; beyond that it is other data

Array = NDArray[Any]
Content = Mapping[str, "Array | bytes"]
"""The parts by file name: an array, or the bytes of an npy file that is kept exactly as it came."""


@dataclass(frozen=True)
class Part:
    """One file of a dataset and what it must hold."""

    file: str
    what: str  # "training images", as a sentence needs it
    shape: tuple[int, ...]
    sha256: str
    dtype: str = "uint8"
    of_file: bool = False  # the sha256 is that of the npy file itself, not of the array's bytes

    @property
    def unit(self) -> str:
        """What the first axis counts: images or labels."""
        return "labels" if len(self.shape) == 1 else "images"


@dataclass(frozen=True)
class StoredSet:
    """A dataset that btfl can keep and verify."""

    name: str
    title: str
    parts: tuple[Part, ...]

    def verify(self, content: Content, origin: str) -> None:
        """Refuse content that is not exactly the dataset."""
        for part in self.parts:
            held = content[part.file]
            array = _array(held, f"{part.file} of {origin}")
            if array.shape != part.shape or array.dtype != np.dtype(part.dtype):
                raise DataError(
                    f"{origin}: the {part.what} of {self.title} are {part.dtype} of shape {part.shape}, "
                    f"not {array.dtype} of shape {array.shape}"
                )
            found = _sha256(held)
            if found != part.sha256:
                raise DataError(
                    f"{origin}: these are not the {part.what} of {self.title}, or they are damaged "
                    f"(sha256 {found[:16]}…, should be {part.sha256[:16]}…)"
                )

    def save(self, content: Content, folder: Path) -> None:
        """Write verified content to ``folder``, in place of what it held: all of it, or nothing."""
        described: dict[str, Any] = {}
        with replacing_folder(folder) as new:
            for part in self.parts:
                held = content[part.file]
                with (new / part.file).open("wb") as file:
                    if isinstance(held, np.ndarray):
                        np.save(file, held, allow_pickle=False)
                    else:
                        file.write(held)
                array = _array(held, part.file)
                described[part.file] = {"sha256": part.sha256, "shape": part.shape, "blocks": _blocks(array)}
            write_json(new / MANIFEST, {"format": FORMAT, "name": self.name, "parts": described})

    def is_in(self, folder: Path) -> bool:
        """Whether ``folder`` has the dataset's files in this form, sound or damaged."""
        return all((folder / part.file).is_file() for part in self.parts)

    def load(self, folder: Path, file: str) -> Array:
        """Return one part, mapped from the disk: quick, and shared between processes.

        Shape and type are checked, and the hash of labels; that of pixels is left to :meth:`problems`, because it
        would cost more than all the rest of loading.
        """
        part = next(part for part in self.parts if part.file == file)
        path = folder / file
        problem = _wrong_form(part, path)
        if problem is None:
            array = np.load(path, mmap_mode="c", allow_pickle=False)  # "c": writable, the file stays as it is
            if part.unit == "images" or _hash_of(part, path, array) == part.sha256:
                return np.asarray(array)
            problem = f"{file} does not hold the {part.what} of {self.title}"
        raise StorageError(f"{path.parent}: {problem}. Run `btfl data get {self.name}` to repair it.")

    def problems(self, folder: Path) -> list[str]:
        """Read everything and return a sentence for each file that is not as published."""
        return [found for part in self.parts if (found := self._problem(part, folder / part.file))]

    def _problem(self, part: Part, path: Path) -> str | None:
        wrong = _wrong_form(part, path)
        if wrong is not None:
            return wrong
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        found = _hash_of(part, path, array)
        if found == part.sha256:
            return None
        kind = f"a wrong {part.unit[:-1]} file"
        blocks = _blocks(array)
        recorded = _recorded_blocks(part, path.parent, len(blocks))
        if recorded is None:
            return (
                f"{part.file} does not hold the {part.what} of {self.title}: damaged, or {kind} "
                f"(sha256 {found[:16]}…, should be {part.sha256[:16]}…)"
            )
        differing = [i for i, (now, then) in enumerate(zip(blocks, recorded, strict=True)) if now != then]
        if len(differing) > DAMAGED_AT_MOST * len(blocks) and len(blocks) > 1:
            return (
                f"{part.file} is {kind}: it holds other {part.unit} than the {part.what} of {self.title} "
                f"({len(differing)} of {len(blocks)} blocks differ)"
            )
        if not differing:
            return f"{part.file} has a damaged header (a flipped byte before the {part.unit})"
        first, last = _span(part.shape[0], differing[0])
        more = "" if len(differing) == 1 else f" and {len(differing) - 1} more places"
        return f"{part.file} is damaged (a flipped byte or more) within {part.unit} {first:,} to {last:,}{more}"


def read_bytes(path: Path) -> bytes:
    """Read a file of the user's; one that cannot be read is a ``DataError``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _wrong_form(part: Part, path: Path) -> str | None:
    """Return what is wrong with a file before its values are read: missing, truncated, of another shape."""
    if not path.is_file():
        return f"{part.file} is missing"
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"npy format {version}")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
    except (ValueError, EOFError, SyntaxError, OSError) as error:
        if size < 128:
            return f"{part.file} is truncated: {size:,} bytes are left"
        return f"{part.file} has a damaged header: {error}"
    if shape != part.shape or dtype != np.dtype(part.dtype) or fortran:
        return (
            f"{part.file} is a wrong {part.unit[:-1]} file: it holds {dtype} of shape {shape}, "
            f"not {part.dtype} of shape {part.shape}"
        )
    whole = start + dtype.itemsize * int(np.prod(shape))
    if size < whole:
        return f"{part.file} is truncated: {size:,} bytes of {whole:,}"
    if size > whole:
        return f"{part.file} is too long: {size:,} bytes instead of {whole:,}"
    return None


def _hash_of(part: Part, path: Path, array: Array) -> str:
    return _sha256(path.read_bytes() if part.of_file else array)


def _sha256(held: Array | bytes) -> str:
    return hashlib.sha256(held if isinstance(held, bytes) else np.ascontiguousarray(held).data).hexdigest()


def _span(length: int, block: int) -> tuple[int, int]:
    size = -(-length // BLOCKS)
    return block * size, min(length, (block + 1) * size) - 1


def _blocks(array: Array) -> list[int]:
    size = -(-len(array) // BLOCKS)
    return [zlib.crc32(np.ascontiguousarray(array[i : i + size]).data) for i in range(0, len(array), size)]


def _recorded_blocks(part: Part, folder: Path, count: int) -> list[int] | None:
    """Return the checksums of the manifest, if there is one and it fits."""
    try:
        blocks = read_json(folder / MANIFEST)["parts"][part.file]["blocks"]
    except (OSError, KeyError, TypeError):
        return None
    return blocks if isinstance(blocks, list) and len(blocks) == count else None


def _array(held: Array | bytes, name: str) -> Array:
    if isinstance(held, np.ndarray):
        return held
    try:
        array = np.load(io.BytesIO(held), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{name} is not a whole npy file: {error}") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name} is an npz, not an npy file")
    return array
