"""Arrays that take long to make, kept on disk by what they were made from: rendered streams, their features, figures.

Each entry is one file: a sha256, and the arrays as safetensors. It is written in one step, checked when it is read, and
made again if it is damaged. What was used longest ago is removed when all entries together exceed a limit.
`btfl data clean` removes them all.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from btfl.data.fetching.cache import cache_root
from btfl.errors import InputError, StorageError
from btfl.storage import read_file, write_atomically

log = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]
FOLDER, LIMIT = "BTFL_KEPT", "BTFL_KEPT_LIMIT"
"""Environment variables: another folder, and another limit in megabytes."""
_LIMIT = 2_000  # megabytes
_SUFFIX = ".kept"
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Kept:
    """A folder of entries.

    Parameters
    ----------
    folder : it need not exist yet
    limit : bytes of all entries together; 0: nothing is kept
    """

    folder: Path
    limit: int

    @classmethod
    def usual(cls) -> Kept:
        """Return the one of this user: ``$BTFL_KEPT``, else a folder in the cache; ``$BTFL_KEPT_LIMIT`` megabytes."""
        named, limit = os.environ.get(FOLDER), os.environ.get(LIMIT) or str(_LIMIT)
        if not limit.isdecimal():
            raise InputError(f"${LIMIT} must be a whole number of megabytes, 0 to keep nothing, not {limit!r}")
        return cls(Path(named).expanduser() if named else cache_root() / "kept", int(limit) * 1_000_000)

    def find(self, *key: object) -> dict[str, NDArray[Any]] | None:
        """Return the arrays that were kept under a key; None if there are none, or they are damaged."""
        path = self._path(key)
        if self.limit == 0 or not path.exists():
            return None
        try:
            content = memoryview(read_file(path, self.limit))
            if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
                raise StorageError("its content is not what was written")
            arrays = load(bytes(content[_DIGEST:]))
        except (StorageError, SafetensorError) as error:
            if not path.exists():  # another process has made room
                return None
            log.warning("%s is damaged and made again: %s", path, error)
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)  # used now
        return arrays

    def keep(self, arrays: Arrays, *key: object) -> None:
        """Keep arrays under a key. Where that cannot be done, a warning says so, and nothing else happens."""
        content = save(dict(arrays))
        if len(content) + _DIGEST > self.limit:
            return
        try:
            write_atomically(self._path(key), hashlib.sha256(content).digest() + content)
            self._make_room()
        except (OSError, StorageError) as error:
            log.warning("nothing can be kept in %s: %s", self.folder, error)

    def clean(self) -> tuple[int, int]:
        """Remove all entries; return how many there were, and their bytes."""
        found = self._entries()
        for path, _, _ in found:
            path.unlink(missing_ok=True)
        return len(found), sum(size for _, size, _ in found)

    def _make_room(self) -> None:
        found = self._entries()
        over = sum(size for _, size, _ in found) - self.limit
        for path, size, _ in sorted(found, key=lambda entry: entry[2]):
            if over <= 0:
                break
            path.unlink(missing_ok=True)
            over -= size

    def _entries(self) -> list[tuple[Path, int, float]]:
        """Return each entry's path, bytes and when it was last used."""
        found = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):  # another process has removed it
                status = path.stat()
                found.append((path, status.st_size, status.st_mtime))
        return found

    def _path(self, key: tuple[object, ...]) -> Path:
        told = "\n".join([_code(), *map(str, key)])
        return self.folder / f"{hashlib.sha256(told.encode()).hexdigest()}{_SUFFIX}"


@cache
def _code() -> str:
    """Return a digest of the code that renders streams and builds networks: what other code made is not found."""
    return _digest(("numpy", "scipy", "pillow"), ("pixels", "models", "data"))


@cache
def source_digest(*libraries: str) -> str:
    """Return a digest of all source of btfl and of the versions of libraries: for what any of it may have a part in."""
    return _digest(libraries, (".",))


def _digest(libraries: Sequence[str], folders: Sequence[str]) -> str:
    made_with = " ".join(f"{name} {version(name)}" for name in libraries)
    package, digest = Path(__file__).parents[1], hashlib.sha256(made_with.encode())
    for folder in folders:
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
