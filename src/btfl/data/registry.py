"""Every data source by name; a source's module is imported when it is asked for, not before."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from btfl.data.source import Source, SourceLoader
from btfl.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class Entry:
    """A source as the registry knows it: one line about it, and where its loader is."""

    description: str
    module: str
    function: str = "load"
    needs_root: bool = True

    def loader(self) -> SourceLoader:
        """Import the source's module and give its loader."""
        return cast("SourceLoader", getattr(importlib.import_module(self.module), self.function))

    def options(self) -> dict[str, Any]:
        """Return the options of its own that the loader takes, with their defaults."""
        parameters = inspect.signature(self.loader()).parameters
        return {name: p.default for name, p in parameters.items() if name not in ("root", "shift")}


SOURCES: Mapping[str, Entry] = {
    "digits": Entry(
        "handwritten 8x8 digits; shift: printed digits. Nothing to download",
        "btfl.data.sources.digits",
        needs_root=False,
    ),
    "cifar10": Entry(
        "CIFAR-10, 10 classes; shift: CIFAR-10.1, or an npz such as CINIC-10's ImageNet part",
        "btfl.data.sources.cifar10",
        needs_root=False,
    ),
    "officehome": Entry(
        "OfficeHome, 65 classes, 4 domains; shift: the domain left out", "btfl.data.sources.folder", "load_officehome"
    ),
    "folder": Entry(
        "any folder or tar domain/class/image (PACS, Office-31, yours); shift: the domain left out",
        "btfl.data.sources.folder",
    ),
    "imagenet32": Entry(
        "ImageNet at 32x32, npz form; shift: ImageNet-R, shared classes", "btfl.data.sources.imagenet32"
    ),
    "arrays": Entry("your own npz: x, y and, if you have them, x_shift, y_shift, classes", "btfl.data.sources.arrays"),
}


def load_source(
    name: str, *, root: str | Path | None = None, shift: str | Path | None = None, **options: Any
) -> Source:
    """Load a data source.

    ``root`` is where the data lies (a folder, tar or npz, as the source wants it; cifar10 falls back on the
    cache). ``shift`` chooses the other domain; every source takes "none". Further options are the source's
    own, for example ``image_size`` of folder or ``per_class`` of imagenet32.
    """
    entry = SOURCES.get(name.lower())
    if entry is None:
        raise UnknownNameError("dataset", name, SOURCES)
    known = entry.options()
    for option in options:
        if option not in known:
            raise InputError(
                f"the dataset {name} has no option '{option}'; it takes {', '.join(['root', 'shift', *known])}"
            )
    place = None if root is None else Path(root).expanduser()
    return entry.loader()(root=place, shift=shift, **options)
