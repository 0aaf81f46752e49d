"""The folder where fetched data is kept, and the placing of files in it: whole or not at all.

The folder is ``$BTFL_DATA`` if that is set, else the platform's cache folder for "btfl". Whatever is placed
is first written under a temporary name in the same folder, flushed to the disk and then renamed, so that a
reader never meets half a file, however a write was ended.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from btfl.errors import BtflError, StorageError

ENVIRONMENT = "BTFL_DATA"
TEMPORARY = ".btfl-tmp-"
STALE_SECONDS = 24 * 3600

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(what, done, total)``; ``total`` is None where it is not known."""


def silent(what: str, done: int, total: int | None) -> None:
    """Report no progress: the default everywhere."""


def cache_root() -> Path:
    """Name the per-user folder of fetched data (it may not exist yet)."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("btfl", appauthor=False)


@contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """Return a temporary folder inside ``root``, on the disk of what will be placed; it is removed at the end."""
    folder: Path | None = None
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=root))
        _sweep(root)
        yield folder
    except OSError as error:
        if isinstance(error, BtflError):
            raise
        raise StorageError(
            f"cannot write in {root}: {error.strerror or error}. Set {ENVIRONMENT} to a folder with room."
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def placing_file(target: Path) -> Iterator[Path]:
    """Return a temporary name to write to; if the block ends well it becomes ``target``, else it is removed."""
    with workspace(target.parent) as folder:
        written = folder / target.name
        yield written
        _flush(written)
        written.replace(target)
        _flush_folder(target.parent)


@contextmanager
def placing_folder(target: Path) -> Iterator[Path]:
    """Return a temporary folder to fill; if the block ends well it becomes ``target``, in place of an older one."""
    with workspace(target.parent) as folder:
        filled = folder / "new"
        filled.mkdir()
        yield filled
        for path in filled.iterdir():
            _flush(path)
        if target.exists():  # a folder cannot be replaced in one step: the old one goes aside, then away
            target.replace(folder / "old")
        filled.replace(target)
        _flush_folder(target.parent)


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there, and a rename needs no flush
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(root: Path) -> None:
    """Remove what a killed process left; only what is a day old, for another process may be at work now."""
    for left in root.glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
