"""The user's own images in one npz file.

=====================  ======================================================================================
key                    what
=====================  ======================================================================================
``x``, ``y``           the pool: uint8 (n, height, width, 1 or 3) or (n, height, width), and integer labels
``x_train, y_train``   the same under another name; ``x_val, y_val`` are added (btfl makes its own split)
``x_shift, y_shift``   the other domain; labels index the same classes, of which some may be missing
``x_NAME, y_NAME``     likewise, named by ``shift="NAME"``; without one named, the only such pair is taken
``classes``            the names of the classes, a string array; else they are called 0, 1, 2, ...
``domain``             the domain of each pool image, whole numbers or strings, where it has several
=====================  ======================================================================================

``x_test, y_test`` are another domain only with ``shift="test"``. ``shift`` may also be
the path of a second npz whose ``x`` and ``y`` are the other domain; ``shift="none"`` is none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.data.source import NO_SHIFT_NOTE, Labels, Samples, Source
from btfl.data.sources.npz import Npz
from btfl.errors import DataError, InputError, listed
from btfl.pixels.types import Images


def load(*, root: Path | None = None, shift: str | Path | None = None) -> Source:
    """Load the npz file ``root``; see this module for its keys and for ``shift``."""
    if root is None:
        raise InputError("arrays needs the path of an npz file as root")
    with Npz(root) as npz:
        images, labels, key = _pool(npz)
        classes = npz.class_names() if "classes" in npz else npz.classes_of(key, labels)
        npz.in_range(key, labels, classes)
        domains, domain_names = _domains(npz, len(labels))
        notes: list[str] = []
        shifted, shift_name = _shifted(npz, shift, classes, notes)
    empty = [classes[i] for i in np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0)]
    if empty:
        notes.append(f"{len(empty)} of the {len(classes)} classes have no image in the pool: {listed(empty, 10)}")
    if shifted is None:
        notes.append(NO_SHIFT_NOTE)
    return Source(
        name=root.stem,
        classes=classes,
        pool=Samples(images, labels),
        shifted=shifted,
        shift_name=shift_name,
        domains=domains,
        domain_names=domain_names,
        notes=tuple(notes),
    )


def _pool(npz: Npz) -> tuple[Images, Labels, str]:
    if "x" in npz or "x_train" not in npz:
        images = npz.images("x")
        return images, npz.labels("y", images, "x"), "y"
    images = npz.images("x_train")
    labels = npz.labels("y_train", images, "x_train")
    if "x_val" in npz:
        more = npz.images("x_val")
        if more.shape[1:] != images.shape[1:]:
            raise DataError(f"{npz.path.name}: images of 'x_val' are {more.shape[1:]}, of 'x_train' {images.shape[1:]}")
        labels = np.concatenate([labels, npz.labels("y_val", more, "x_val")])
        images = np.concatenate([images, more])
    return images, labels, "y_train"


def _domains(npz: Npz, count: int) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    if "domain" not in npz:
        return None, ()
    values = npz.read("domain")
    if values.shape != (count,) or values.dtype.kind not in "iuUS":
        raise DataError(
            f"{npz.path.name}: 'domain' must hold one whole number or string for each of the {count:,} images "
            f"of the pool, not {values.dtype} of shape {values.shape}"
        )
    names, index = np.unique(values, return_inverse=True)
    return index.astype(np.int64), npz.texts("domain", names)


def _shifted(
    npz: Npz, shift: str | Path | None, classes: tuple[str, ...], notes: list[str]
) -> tuple[Samples | None, str | None]:
    pairs = sorted(
        key[2:]
        for key in npz.keys
        if key.startswith("x_") and key[2:] not in ("train", "val", "") and f"y_{key[2:]}" in npz
    )
    if shift is None:
        others = [name for name in pairs if name != "test"]
        if "shift" in others:
            shift = "shift"
        elif len(others) > 1:
            raise InputError(f"{npz.path.name} has several other domains: choose shift={' or '.join(others)}, or none")
        elif others:
            shift = others[0]
        else:
            if "x_shift" in npz:
                raise DataError(f"{npz.path.name} has 'x_shift' but no 'y_shift'")
            if "test" in pairs:
                notes.append("x_test and y_test are not used: btfl splits the pool itself")
            return None, None
    if str(shift) in pairs:
        name = str(shift)
        images = npz.images(f"x_{name}")
        labels = npz.labels(f"y_{name}", images, f"x_{name}")
        return Samples(images, npz.in_range(f"y_{name}", labels, classes)), name
    if str(shift).lower() == "none":
        return None, None
    if Path(shift).is_file():
        return read_other(Path(shift), classes), Path(shift).stem
    raise InputError(
        f"{npz.path.name} has no pair x_{shift}, y_{shift}, and there is no file {shift}; "
        f"shift can be {', '.join([*pairs, 'none'])} or the path of an npz"
    )


def read_other(path: Path, classes: tuple[str, ...]) -> Samples:
    """Read another domain from an npz with ``x`` and ``y``; labels are matched by name if it has ``classes``."""
    with Npz(path) as npz:
        images = npz.images("x")
        labels = npz.labels("y", images, "x")
        if "classes" not in npz:
            return Samples(images, npz.in_range("y", labels, classes))
        theirs = npz.class_names()
        npz.in_range("y", labels, theirs)
    strange = [name for name in theirs if name not in classes]
    if strange:
        raise DataError(f"{path.name}: its classes {listed(strange, 10)} are none of {listed(classes, 10)}")
    index = np.array([classes.index(name) for name in theirs], dtype=np.int64)
    return Samples(images, index[labels])
