"""Files that are either the old ones or the new ones, never half of each; tensors and JSON, never pickle."""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as safetensors_load
from safetensors.numpy import save as safetensors_save

from btfl.errors import StorageError

Arrays = Mapping[str, NDArray[Any]]

LARGEST_JSON = 64 << 20
"""Bytes of a JSON file; larger ones are neither written nor read."""
LARGEST_TENSORS = 4 << 30
"""Bytes of a file of tensors."""
MOST_LEVELS = 64
"""Objects and lists inside each other in a JSON file."""
MOST_DIGITS = 300
"""Digits of a whole number in a JSON file: any shorter one is finite as a float too."""

_TEMPORARY = ".btfl-tmp-"
_TEMPORARY_FILE = re.compile(r"\..+\.(json|safetensors|parquet)\.[a-z0-9_]{8}\.tmp")
_STALE_SECONDS = 24 * 3600
_SEAL = "record_sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RECORD = {"kind", "version", "tensors", "sha256", "fields"}
log = logging.getLogger(__name__)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader, or a crash, sees the old content or the new.

    Parameters
    ----------
    path : the file; its folder is made if there is none
    content : all that the file will hold
    """
    with replacing_file(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Replace a file in one step: write the new one in the block, at the path it gives.

    If the block ends well the new file takes the old one's place; else the old one stays.

    Parameters
    ----------
    path : the file; its folder is made if there is none
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    try:
        yield Path(temporary)
        with Path(temporary).open("r+b") as file:
            os.fsync(file.fileno())
        # mkstemp makes the file private; give it the mode any new file would get
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Replace a folder of files: fill the new one in the block; if that ends well, it becomes ``target``.

    If the block fails, or the process is killed in it, ``target`` stays as it was, or absent.

        with replacing_folder(cache / "cifar10") as folder:
            (folder / "labels.npy").write_bytes(content)
    """
    with temporary_folder(target.parent) as work:
        filled = work / "new"
        filled.mkdir()
        yield filled
        for path in filled.rglob("*"):
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        if not target.exists():
            filled.replace(target)
        elif not _exchanged(filled, target):  # else the old one is moved aside first, and a kill may leave neither
            target.replace(work / "old")
            filled.replace(target)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, where the system can (Linux); return whether it did."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in ``parent``, on the disk of what is made there; it is removed when the block ends.

    Those that killed processes left are removed too, when they are a day old: another process may be using a younger.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{_TEMPORARY}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_temporary(folder: Path, *, below: bool = False) -> None:
    """Delete the temporary files that killed processes left in a folder; ``below``: in its subfolders too.

    Only for a folder in which no other process is writing (``runs.lock``).
    """
    for path in sorted(folder.rglob(".*.tmp") if below else folder.glob(".*.tmp")):
        if _TEMPORARY_FILE.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode):
            path.unlink(missing_ok=True)


def check_inside(folder: Path, *names: str) -> None:
    """Refuse to write below ``names`` in a folder if a link there leads out of it, or if a pipe or device is there.

    A folder may come from a stranger; what is written into it stays in it.
    """
    root = os.path.realpath(folder)
    for name in names:
        below = (Path(place) / one for place, folders, files in os.walk(folder / name) for one in (*folders, *files))
        for path in (folder / name, *below):
            with suppress(FileNotFoundError):  # a temporary file of another process
                mode = path.lstat().st_mode
                real = os.path.realpath(path)
                if stat.S_ISLNK(mode) and os.path.commonpath([root, real]) != root:
                    raise StorageError(
                        f"{path} is a link that leads out of {folder}, and nothing is written through it. "
                        "Remove it, or name another folder"
                    )
                if not (stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                    raise StorageError(f"{path} is neither a file nor a folder. Remove it, or name another folder")


def read_file(path: Path, most: int) -> bytes:
    """Read a regular file of at most so many bytes; anything else is a ``StorageError``, at once.

    A pipe or device is refused before anything is read of it, so that nothing can hang.
    """
    try:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise StorageError(f"{path} is not a regular file")
            if found.st_size > most:
                raise StorageError(f"{path} is {found.st_size:,} bytes long; the limit is {most:,}")
            return file.read()
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist") from None
    except StorageError:
        raise
    except MemoryError:
        raise StorageError(f"{path} does not fit into memory") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        raise StorageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long or with a null byte, a folder that may not be read
        return True  # reading it says what is wrong


def write_json(path: Path, content: Any) -> None:
    """Write JSON that a person can read, atomically; what ``read_json`` would refuse is not written."""
    text = (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
    parse_json(text, path)
    write_atomically(path, text)


def read_json(path: Path) -> Any:
    """Read JSON; a missing or damaged file, or one beyond the limits of this module, is a ``StorageError``."""
    return parse_json(read_file(path, LARGEST_JSON), path)


def parse_json(text: bytes, path: Path) -> Any:
    """Return what JSON says; what no number of ours can be, or is nested too deeply, is a ``StorageError``.

    Parameters
    ----------
    text : in UTF-8
    path : the file it is from, which the error names
    """
    if len(text) > LARGEST_JSON:
        raise StorageError(f"{path} would be {len(text):,} bytes long; the limit is {LARGEST_JSON:,}")
    try:
        content = json.loads(
            text.decode("utf-8"), parse_float=_finite, parse_int=_whole, parse_constant=_finite, object_pairs_hook=_once
        )
    except RecursionError:
        raise StorageError(f"{path} is nested more than {MOST_LEVELS} levels deep") from None
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from None
    level = [content]
    for _ in range(MOST_LEVELS + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return content
        level = [child for one in level for child in (one.values() if isinstance(one, dict) else one)]
    raise StorageError(f"{path} is nested more than {MOST_LEVELS} levels deep")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text):,} digits; the limit is {MOST_DIGITS}")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name is there twice in one object")
    return content


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the sha256 of its own content, which ``read_described`` checks."""
    return {**record, _SEAL: _digest(record)}


def _digest(record: Mapping[str, Any]) -> str:
    # there and back first: what is read has strings for keys, and they sort otherwise than numbers do
    plain = json.loads(json.dumps(record, allow_nan=False))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def save_record(folder: Path, name: str, kind: str, version: int, fields: Mapping[str, Any], arrays: Arrays) -> None:
    """Save fields and arrays as ``name.json`` and one safetensors file that the JSON names by its hash.

    The tensors are written first, under a new name; replacing the JSON is the one step that makes them count. The
    JSON holds the sha256 of the tensors, and one of all that it says itself.

    Parameters
    ----------
    folder, name : where: ``folder/name.json`` and ``folder/name-<hash>.safetensors``
    kind, version : what ``load_record`` checks before it reads anything else
    fields : what JSON can hold
    arrays : by name, of any shape and type that safetensors knows
    """
    content = safetensors_save({key: np.asarray(value, order="C") for key, value in arrays.items()})
    if len(content) > LARGEST_TENSORS:
        raise StorageError(f"the tensors of {name} are {len(content):,} bytes long; the limit is {LARGEST_TENSORS:,}")
    digest = hashlib.sha256(content).hexdigest()
    tensors = f"{name}-{digest[:16]}.safetensors"
    write_atomically(folder / tensors, content)
    record = {"kind": kind, "version": version, "tensors": tensors, "sha256": digest, "fields": dict(fields)}
    write_json(folder / f"{name}.json", sealed(record))
    of_this_record = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}\.safetensors")
    for old in list(folder.iterdir()):
        if old.name != tensors and of_this_record.fullmatch(old.name):
            old.unlink(missing_ok=True)


def load_version(path: Path) -> object:
    """Return the format version that a record names; None if it names none."""
    record = read_json(path)
    return record.get("version") if isinstance(record, dict) else None


def read_described(
    path: Path,
    kind: str,
    version: int,
    needs: Sequence[str] = (),
    otherwise: str = "Use the btfl that wrote it, or write it again",
) -> dict[str, Any]:
    """Read JSON that names its kind and version; ``otherwise`` says what to do if it is of no use.

    ``needs`` are the entries it must have. If it is ``sealed``, its sha256 must be right; btfl 0.1.0 sealed nothing.
    """
    record = read_json(path)
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise StorageError(f"{path} is not a {kind}")
    found = record.get("version")
    if found != version or isinstance(found, bool):
        raise StorageError(f"{path} has format version {found!r}; this btfl reads version {version}. {otherwise}")
    if missing := [name for name in needs if name not in record]:
        raise StorageError(f"{path} is incomplete: it lacks {', '.join(missing)}. {otherwise}")
    if _SEAL not in record:
        # A sha256 under another name is a seal whose name is damaged: not the file of an older btfl, which has none.
        if any(
            isinstance(value, str) and _SHA256.fullmatch(value) for name, value in record.items() if name != "sha256"
        ):
            raise StorageError(f"{path} is damaged or was edited: the name of its sha256 is not {_SEAL}")
        log.info("%s was written by an older btfl: no sha256 covers what it says", path)
    elif record.pop(_SEAL) != _digest(record):
        raise StorageError(f"{path} is damaged or was edited: its sha256 is not the one of its content")
    return record


def load_record(folder: Path, name: str, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Load what ``save_record`` saved, as fields and arrays.

    Anything missing, damaged, of another kind or version is a ``StorageError`` with what is wrong.
    """
    path = folder / f"{name}.json"
    if not _exists(path):
        raise StorageError(f"no {kind} in {folder}: {path.name} is missing")
    record = read_described(path, kind, version)
    tensors = record.get("tensors")
    if (
        record.keys() != _RECORD
        or not isinstance(tensors, str)
        or not re.fullmatch(r"[^/\\\0]+\.safetensors", tensors)
        or not isinstance(record["fields"], dict)
    ):
        raise StorageError(f"{path} is damaged: it does not name its tensors and fields")
    if not _exists(folder / tensors):
        raise StorageError(f"{path} names {tensors}, which is missing")
    content = read_file(folder / tensors, LARGEST_TENSORS)
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        raise StorageError(f"{folder / tensors} is damaged or truncated: its sha256 is not the one in {path.name}")
    try:
        return record["fields"], safetensors_load(content)
    except (SafetensorError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StorageError(f"{folder / tensors} cannot be read as safetensors: {error}") from None
    except MemoryError:
        raise StorageError(f"{folder / tensors} does not fit into memory") from None
