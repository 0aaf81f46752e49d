"""Files that are either the old ones or the new ones, never half of each; tensors and JSON, never pickle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
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

_TEMPORARY = ".btfl-tmp-"
_STALE_SECONDS = 24 * 3600


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader, or a crash, sees the old content or the new.

    Parameters
    ----------
    path : the file; its folder is made if there is none
    content : all that the file will hold
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
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
        for path in filled.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        if target.exists():  # a folder cannot be replaced in one step: the old one is moved aside, then removed
            target.replace(work / "old")
        filled.replace(target)


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


def write_json(path: Path, content: Any) -> None:
    """Write JSON that a person can read, atomically."""
    write_atomically(path, (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON; a missing or damaged file is a ``StorageError``."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is damaged: {error}") from None


def save_record(folder: Path, name: str, kind: str, version: int, fields: Mapping[str, Any], arrays: Arrays) -> None:
    """Save fields and arrays as ``name.json`` and one safetensors file that the JSON names by its hash.

    The tensors are written first, under a new name; replacing the JSON is the one step that makes them count.

    Parameters
    ----------
    folder, name : where: ``folder/name.json`` and ``folder/name-<hash>.safetensors``
    kind, version : what ``load_record`` checks before it reads anything else
    fields : what JSON can hold
    arrays : by name, of any shape and type that safetensors knows
    """
    content = safetensors_save({key: np.asarray(value, order="C") for key, value in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    tensors = f"{name}-{digest[:16]}.safetensors"
    write_atomically(folder / tensors, content)
    record = {"kind": kind, "version": version, "tensors": tensors, "sha256": digest, "fields": dict(fields)}
    write_json(folder / f"{name}.json", record)
    for old in folder.glob(f"{name}-*.safetensors"):
        if old.name != tensors:
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

    ``needs`` are the entries it must have.
    """
    record = read_json(path)
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise StorageError(f"{path} is not a {kind}")
    if record.get("version") != version:
        found = record.get("version")
        raise StorageError(f"{path} has format version {found!r}; this btfl reads version {version}. {otherwise}")
    if missing := [name for name in needs if name not in record]:
        raise StorageError(f"{path} is incomplete: it lacks {', '.join(missing)}. {otherwise}")
    return record


def load_record(folder: Path, name: str, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Load what ``save_record`` saved, as fields and arrays.

    Anything missing, damaged, of another kind or version is a ``StorageError`` with what is wrong.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        raise StorageError(f"no {kind} in {folder}: {path.name} is missing")
    record = read_described(path, kind, version)
    tensors = record.get("tensors")
    if not isinstance(tensors, str) or Path(tensors).name != tensors or not isinstance(record.get("fields"), dict):
        raise StorageError(f"{path} is damaged: it does not name its tensors and fields")
    try:
        content = (folder / tensors).read_bytes()
    except FileNotFoundError:
        raise StorageError(f"{path} names {tensors}, which is missing") from None
    if hashlib.sha256(content).hexdigest() != record.get("sha256"):
        raise StorageError(f"{folder / tensors} is damaged or truncated: its sha256 is not the one in {path.name}")
    try:
        return record["fields"], safetensors_load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise StorageError(f"{folder / tensors} cannot be read as safetensors: {error}") from None
