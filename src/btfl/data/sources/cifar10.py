"""CIFAR-10: its 50,000 training images, and CIFAR-10.1 or an npz of the same classes as the other domain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.data.fetching import get_cifar10, get_cifar101
from btfl.data.fetching.cache import cache_root
from btfl.data.source import NO_SHIFT_NOTE, Samples, Source
from btfl.data.sources.arrays import read_other
from btfl.data.sources.npz import Npz
from btfl.errors import DataError, InputError

SHIFTS = {"cifar10.1": ("v6", "v4"), "cifar10.1-v6": ("v6",), "cifar10.1-v4": ("v4",)}


def load(*, root: Path | None = None, shift: str | Path | None = None) -> Source:
    """Load CIFAR-10.

    Parameters
    ----------
    root : a folder with any form that ``btfl data get`` understands; None: the cache
    shift : the other domain: "cifar10.1" (v6 if it is available, else v4), "cifar10.1-v6", "cifar10.1-v4", "none", or
        the path of an npz with ``x`` and ``y``; None: CIFAR-10.1 if it is available, else none, with a note
    """
    images, labels = _pool(root)
    shifted, shift_name, notes = _shifted(root, shift)
    return Source(
        name="cifar10",
        classes=get_cifar10.CLASSES,
        pool=Samples(images, labels.astype(np.int64)),
        shifted=shifted,
        shift_name=shift_name,
        named_after_files=frozenset({"shift_name"} if _is_file(shift) else ()),
        notes=notes,
    )


def _pool(root: Path | None) -> tuple[NDArray[Any], NDArray[Any]]:
    stored = get_cifar10.CIFAR10
    folder = cache_root() / stored.name if root is None else root
    if stored.is_in(folder):
        return stored.load(folder, "x_train.npy"), stored.load(folder, "y_train.npy")
    if root is None:
        raise DataError(
            f"CIFAR-10 is not available ({folder} does not hold it): run `btfl data get cifar10`, or name the "
            f"folder where you keep it as root"
        )
    content = get_cifar10.read_from(root)
    stored.verify(content, root.name)
    images, labels = content["x_train.npy"], content["y_train.npy"]
    assert isinstance(images, np.ndarray)
    assert isinstance(labels, np.ndarray)
    return images, labels


def _shifted(root: Path | None, shift: str | Path | None) -> tuple[Samples | None, str | None, tuple[str, ...]]:
    places = [*([root] if root is not None else []), cache_root()]
    named = _named(shift)
    if named == "none":
        return None, None, (NO_SHIFT_NOTE,)
    if named in SHIFTS:
        for version in SHIFTS[named]:
            folder = get_cifar101.find(version, places)
            if folder is not None:
                return get_cifar101.load(version, folder), get_cifar101.VERSIONS[version].title, ()
        if shift is None:
            note = f"CIFAR-10.1 is not available; {NO_SHIFT_NOTE} (`btfl data get cifar10.1` gets it)"
            return None, None, (note,)
        raise DataError(
            f"{shift} is not available: run `btfl data get {named}`, or copy its npy files to the root folder"
        )
    path = Path(str(shift)).expanduser()
    if not path.is_file():
        raise InputError(
            f"cifar10 has no shift '{shift}', and there is no such file; "
            f"it knows {', '.join(SHIFTS)}, none, or the path of an npz with x and y"
        )
    return read_other(path, get_cifar10.CLASSES), _title(path), ()


def _named(shift: str | Path | None) -> str:
    return "cifar10.1" if shift is None else str(shift).lower()


def _is_file(shift: str | Path | None) -> bool:
    return _named(shift) not in ("none", *SHIFTS)


def _title(path: Path) -> str:
    with Npz(path) as npz:
        is_cinic = "cinic" in path.name.lower() and "classes" in npz
    return "CINIC-10 (ImageNet part)" if is_cinic else path.stem
