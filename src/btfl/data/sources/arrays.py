"""The user's own samples in one npz file: images, signals or vectors.

=====================  ======================================================================================
key                    what
=====================  ======================================================================================
``x``, ``y``           the pool and its labels, whole numbers or strings. Images: uint8 (n, height, width, 1 or
                       3) or (n, height, width); signals (n, time, channels) and vectors (n, d): any other
                       numbers, kept as float32
``x_train, y_train``   the same under another name; ``x_val, y_val`` are added (btfl makes its own split)
``client``             whose each pool sample is, whole numbers or strings; ``partition = "natural"`` uses it
``x_shift, y_shift``   the other domain; labels index the same classes, of which some may be missing
``x_NAME, y_NAME``     likewise, named by ``shift="NAME"``; without one named, the only such pair is taken
``classes``            the names of the classes, a string array; else they are the labels, sorted, if those are
                       strings, or they are called 0, 1, 2, ...
``domain``             the domain of each pool sample, whole numbers or strings, where it has several
=====================  ======================================================================================

``x_test, y_test`` are another domain only with ``shift="test"``. ``shift`` may also be
the path of a second npz whose ``x`` and ``y`` are the other domain; ``shift="none"`` is none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import Values, kind_of
from btfl.data.source import Labels, Samples, Source, without_shift
from btfl.data.sources.npz import Npz
from btfl.errors import DataError, InputError, listed


def load(*, root: Path | None = None, shift: str | Path | None = None) -> Source:
    """Load the npz file ``root``; see this module for its keys and for ``shift``."""
    if root is None:
        raise InputError("arrays needs the path of an npz file as root")
    with Npz(root) as npz:
        values, labels, classes = _pool(npz)
        domains, domain_names = _of_each("domain", npz, values)
        owners, owner_names = _of_each("client", npz, values)
        notes: list[str] = []
        shifted, shift_name, from_file = _shifted(npz, shift, classes, notes)
    empty = [classes[i] for i in np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0)]
    if empty:
        notes.append(f"{len(empty)} of the {len(classes)} classes have no sample in the pool: {listed(empty, 10)}")
    if shifted is None:
        notes.append(without_shift(kind_of(values.shape[1:])))
    return Source(
        name=root.stem,
        classes=classes,
        pool=Samples(values, labels),
        shifted=shifted,
        shift_name=shift_name,
        domains=domains,
        domain_names=domain_names,
        owners=owners,
        owner_names=owner_names,
        named_after_files=frozenset({"name", "shift_name"} if from_file else {"name"}),
        notes=tuple(notes),
    )


def _pool(npz: Npz) -> tuple[Values, Labels, tuple[str, ...]]:
    suffixes = ("",) if "x" in npz or "x_train" not in npz else ("_train", "_val") if "x_val" in npz else ("_train",)
    values = [npz.samples(f"x{suffix}") for suffix in suffixes]
    if len(values) == 2 and values[0].shape[1:] != values[1].shape[1:]:
        raise DataError(
            f"{npz.path.name}: samples of 'x_val' are {values[1].shape[1:]}, of 'x_train' {values[0].shape[1:]}"
        )
    names = npz.class_names() if "classes" in npz else _sorted_labels(npz, suffixes)
    labels = [
        npz.labels(f"y{suffix}", part, f"x{suffix}", names or ()) for suffix, part in zip(suffixes, values, strict=True)
    ]
    both = (values[0], labels[0]) if len(values) == 1 else (np.concatenate(values), np.concatenate(labels))
    classes = names or npz.classes_of(f"y{suffixes[0]}", both[1])
    npz.in_range(f"y{suffixes[0]}", both[1], classes)
    return *both, classes


def _sorted_labels(npz: Npz, suffixes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of the classes where the labels are strings."""
    found = [npz.label_names(f"y{suffix}") for suffix in suffixes]
    names = {name for part in found if part is not None for name in part}
    return tuple(sorted(names)) or None


def _of_each(key: str, npz: Npz, values: Values) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return what an array says of each pool sample, as positions among its different values, and their names."""
    if key not in npz:
        return None, ()
    of_each, kind = npz.read(key), kind_of(values.shape[1:])
    if of_each.shape != (len(values),) or of_each.dtype.kind not in "iuUS":
        raise DataError(
            f"{npz.path.name}: '{key}' must hold one whole number or string for each of the {len(values):,} {kind} "
            f"of the pool, not {of_each.dtype} of shape {of_each.shape}"
        )
    names, index = np.unique(of_each, return_inverse=True)
    return index.astype(np.int64), npz.texts(key, names)


def _shifted(
    npz: Npz, shift: str | Path | None, classes: tuple[str, ...], notes: list[str]
) -> tuple[Samples | None, str | None, bool]:
    """Return the other domain, its name, and whether that is the name of a file."""
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
            return None, None, False
    if str(shift) in pairs:
        name = str(shift)
        values = npz.samples(f"x_{name}")
        labels = npz.labels(f"y_{name}", values, f"x_{name}", classes)
        return Samples(values, npz.in_range(f"y_{name}", labels, classes)), name, False
    if str(shift).lower() == "none":
        return None, None, False
    if Path(shift).is_file():
        return read_other(Path(shift), classes), Path(shift).stem, True
    raise InputError(
        f"{npz.path.name} has no pair x_{shift}, y_{shift}, and there is no file {shift}; "
        f"shift can be {', '.join([*pairs, 'none'])} or the path of an npz"
    )


def read_other(path: Path, classes: tuple[str, ...]) -> Samples:
    """Read another domain from an npz with ``x`` and ``y``; labels are matched by name if it has ``classes``."""
    with Npz(path) as npz:
        values = npz.samples("x")
        theirs = npz.class_names() if "classes" in npz else classes
        labels = npz.in_range("y", npz.labels("y", values, "x", theirs), theirs)
    strange = [name for name in theirs if name not in classes]
    if strange:
        raise DataError(f"{path.name}: its classes {listed(strange, 10)} are none of {listed(classes, 10)}")
    index = np.array([classes.index(name) for name in theirs], dtype=np.int64)
    return Samples(values, index[labels])
