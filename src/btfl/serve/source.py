"""What is served: the bundles of a zoo entry, a run, a trained federation or a folder, one model for each client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError, StorageError
from btfl.monitor import AlarmLevels
from btfl.runs.layout import FederationFiles, RunFiles, TrainingFiles, client_number
from btfl.storage import read_json
from btfl.zoo.serving import PREFIX, RECORD, entry_folder, load_serving

BUNDLE, EXTRACTOR, LEVELS = "bundle.json", "extractor.onnx", "monitor.json"
"""Files of a folder: of each client its bundle and, if it has found them itself, the levels of its monitor."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, eq=False)
class Served:
    """One client's bundle, under the name of its model."""

    name: str
    bundle: ClientBundle
    sha256: str
    """Of what the bundle was read from."""
    calibration: AlarmLevels | None = None
    """The levels of its monitor, if they came with it."""


@dataclass(frozen=True, eq=False)
class Source:
    """Everything to serve, and the extractor for those who send images."""

    clients: tuple[Served, ...]
    extractor: bytes | None = None


def open_source(text: str, recipe: str = "fedavg", extractor: str = "") -> Source:
    """Read ``zoo:NAME``, or a folder: a run, a training, a federation, bundles, or one bundle.

    Parameters
    ----------
    text : as it was typed
    recipe : which training of a run
    extractor : an ONNX file to use in place of the one that lies beside the bundles, if any
    """
    folder = entry_folder(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else Path(text)
    if (folder / f"{RECORD}.json").exists():
        found = _zoo(folder)
    elif text.startswith(PREFIX):
        raise StorageError(f"{text} has no files for serving: this btfl is older than they are. Serve a run instead")
    else:
        beside = folder / EXTRACTOR
        shared = _Shared()
        clients = tuple(shared.bundle(name, path) for name, path in _folders(folder, recipe))
        found = Source(clients, beside.read_bytes() if beside.is_file() else None)
    return Source(found.clients, Path(extractor).read_bytes()) if extractor else found


def _zoo(folder: Path) -> Source:
    serving = load_serving(folder)
    record = hashlib.sha256((folder / f"{RECORD}.json").read_bytes()).hexdigest()
    clients = [
        Served(
            f"client-{number}",
            bundle,
            hashlib.sha256(f"{record} {number}".encode()).hexdigest(),
            serving.calibrations.get(number),
        )
        for number, bundle in sorted(serving.bundles.items())
    ]
    return Source(tuple(clients), serving.extractor)


def _folders(folder: Path, recipe: str) -> Iterator[tuple[str, Path]]:
    """Find the bundles below a folder, each with the name of its model."""
    if (folder / BUNDLE).is_file():
        yield _name(folder.resolve()), folder
        return
    places = [FederationFiles(folder), TrainingFiles(folder).final, RunFiles(folder).training(recipe).final]
    place = next((FederationFiles.current(place.folder).place for place in places if place.record.exists()), folder)
    found = sorted(path.parent for path in place.glob(f"*/{BUNDLE}")) if place.is_dir() else []
    if not found:
        trained = ", ".join(RunFiles(folder).trained()) if folder.is_dir() else ""
        raise InputError(
            f"there is no bundle in {folder}: give zoo:NAME, a finished run of `btfl bench`, a trained federation, or "
            "a folder of bundles" + (f". Trained here: {trained} (--recipe)" if trained else "")
        )
    names = [_name(path) for path in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two bundles in {place} would both be the model {min(twice)}: rename a folder")
    yield from zip(names, found, strict=True)


def _name(folder: Path) -> str:
    """Name a model after its folder: ``client-000003`` is ``client-3``."""
    number = client_number(folder)
    name = folder.name if number is None else f"client-{number}"
    if not _NAME.fullmatch(name):
        raise InputError(f"a model is named after its folder, and {name!r} has other signs than A-Z a-z 0-9 . _ -")
    return name


class _Shared:
    """Keeps arrays that all clients share, such as everyone's sums, in memory once."""

    def __init__(self) -> None:
        self._known: dict[bytes, NDArray[Any]] = {}

    def bundle(self, name: str, folder: Path) -> Served:
        """Load a bundle."""
        bundle = ClientBundle.load(folder)
        kept = {key: self._once(value) for key, value in bundle.statistics.items()}
        object.__setattr__(bundle, "statistics", kept)  # equal arrays; nothing else of it changes
        levels = AlarmLevels.from_json(read_json(folder / LEVELS)) if (folder / LEVELS).is_file() else None
        return Served(name, bundle, hashlib.sha256((folder / BUNDLE).read_bytes()).hexdigest(), levels)

    def _once(self, array: NDArray[Any]) -> NDArray[Any]:
        whole = np.ascontiguousarray(array)
        key = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + whole.tobytes()).digest()
        return self._known.setdefault(key, array)
