"""Every dataset by name; the module that loads it is imported when it is needed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from btfl.data.source import Source, SourceLoader
from btfl.errors import InputError, UnknownNameError
from btfl.imports import load_own


@dataclass(frozen=True)
class Entry:
    """A dataset of the catalogue."""

    description: str
    """One line about it."""
    path: str
    """Its loader, as ``module:function``."""
    needs_root: bool = True
    """Whether the user must name a file or folder."""

    def loader(self) -> SourceLoader:
        """Import the loader."""
        return cast("SourceLoader", load_own(self.path))

    def options(self) -> dict[str, Any]:
        """Return the options of its own that the loader takes, with their defaults."""
        parameters = inspect.signature(self.loader()).parameters
        return {name: p.default for name, p in parameters.items() if name not in ("root", "shift")}


SOURCES: Mapping[str, Entry] = {
    "digits": Entry(
        "handwritten 8x8 digits; shift: printed digits. Nothing to download",
        "btfl.data.sources.digits:load",
        needs_root=False,
    ),
    "cifar10": Entry(
        "CIFAR-10, 10 classes; shift: CIFAR-10.1, or an npz such as CINIC-10's ImageNet part",
        "btfl.data.sources.cifar10:load",
        needs_root=False,
    ),
    "officehome": Entry(
        "OfficeHome, 65 classes, 4 domains; shift: the domain left out", "btfl.data.sources.folder:load_officehome"
    ),
    "folder": Entry(
        "any folder or tar domain/class/image (PACS, Office-31, yours); shift: the domain left out. "
        "With level=client: client/class/image",
        "btfl.data.sources.folder:load",
    ),
    "imagenet32": Entry(
        "ImageNet at 32x32, npz form; shift: ImageNet-R, shared classes", "btfl.data.sources.imagenet32:load"
    ),
    "arrays": Entry(
        "your own npz of images, signals or vectors: x, y and, if you have them, client, x_shift, y_shift, classes",
        "btfl.data.sources.arrays:load",
    ),
    "table": Entry(
        "your own Parquet or CSV: a column of labels, one of clients if you have it, the rest features; "
        "shift: another such file",
        "btfl.data.sources.table:load",
    ),
}


def load_source(
    name: str, *, root: str | Path | None = None, shift: str | Path | None = None, **options: Any
) -> Source:
    """Load a dataset.

    Parameters
    ----------
    name : one of ``SOURCES``
    root : where the data is: a folder, tar or npz, as the dataset needs it; cifar10 is looked for in the cache without
    shift : the other domain; every dataset takes "none"
    options : the dataset's own, for example ``image_size`` of folder or ``label`` of table

    Example
    -------
    >>> load_source("digits")
    Source('digits', 1,797 images of 8x8x1, 10 classes, other domain: printed digits (1,020 images))
    """
    entry = SOURCES.get(name.lower())
    if entry is None:
        raise UnknownNameError("dataset", name, SOURCES)
    known, kinds = entry.options(), get_type_hints(entry.loader())
    for option in options:
        if option not in known:
            raise InputError(
                f"the dataset {name} has no option '{option}'; it takes {', '.join(['root', 'shift', *known])}"
            )
    place = None if root is None else Path(root).expanduser()
    fitting = {option: _of_kind(option, value, kinds[option]) for option, value in options.items()}
    return entry.loader()(root=place, shift=shift, **fitting)


def _of_kind(option: str, value: Any, kind: Any) -> Any:
    """Return an option's value as its loader takes it: a name that looks like a number is a name all the same."""
    kinds = get_args(kind) or (kind,)
    if isinstance(value, kinds) and not isinstance(value, bool):
        return value
    if str in kinds:
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise InputError(f"{option} must be a whole number, not {value!r}")
