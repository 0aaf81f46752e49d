"""Image files in a folder or in a tar file, listed and read alike.

A tar is read member by member and never unpacked, so nothing is written anywhere; links and devices in it are
passed over, and a member whose name climbs out of the archive, or lies below a link of it, is refused.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from btfl.errors import DataError, StorageError, first_line
from btfl.storage import read_file

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
LARGEST_FILE = 256 << 20

Parts = tuple[str, ...]


@dataclass
class Listing:
    """What a tree holds, as paths from its root: image files, folders, and the files that are no images."""

    images: list[Parts] = field(default_factory=list)
    folders: set[Parts] = field(default_factory=set)
    passed_over: list[Parts] = field(default_factory=list)

    def add(self, parts: Parts) -> None:
        """Note one file, as an image or as something else, by its name."""
        hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
        is_image = PurePosixPath(parts[-1]).suffix.lower() in SUFFIXES and not hidden
        (self.images if is_image else self.passed_over).append(parts)


class Tree(Protocol):
    """A folder or a tar file."""

    listing: Listing

    def read(self, files: Sequence[Parts]) -> Iterator[tuple[int, bytes]]:
        """Return the content of each file with its place in ``files``, in whatever order is quick."""
        ...


@contextmanager
def open_tree(root: Path) -> Iterator[Tree]:
    """Open a folder or a tar file."""
    if root.is_dir():
        yield _FolderTree(root)
    elif root.is_file():
        with ExitStack() as opened:
            try:
                tar = opened.enter_context(tarfile.open(root, "r:*"))
            except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
                raise DataError(f"{root.name} is neither a folder nor a whole tar file: {first_line(error)}") from error
            yield _TarTree(root, tar)
    else:
        raise DataError(f"there is no folder or tar file {root}")


class _FolderTree:
    def __init__(self, root: Path) -> None:
        self.root, self.listing = root, Listing()
        walked: set[str] = set()
        for where, folders, names in os.walk(root, followlinks=True):
            real = os.path.realpath(where)
            if real in walked:  # a link to a folder above would have no end
                folders.clear()
                continue
            walked.add(real)
            here = Path(where).relative_to(root).parts
            if here:
                self.listing.folders.add(here)
            for name in names:
                self.listing.add((*here, name))

    def read(self, files: Sequence[Parts]) -> Iterator[tuple[int, bytes]]:
        for i, parts in enumerate(files):
            path = self.root.joinpath(*parts)
            try:
                data = read_file(path, LARGEST_FILE)
            except StorageError as error:
                raise DataError(str(error)) from None
            yield i, data


class _TarTree:
    def __init__(self, root: Path, tar: tarfile.TarFile) -> None:
        self.root, self.tar, self.listing = root, tar, Listing()
        self.members: dict[Parts, tarfile.TarInfo] = {}
        try:
            members = tar.getmembers()
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise DataError(f"{root.name} is damaged or truncated: {error}") from error
        links = {PurePosixPath(member.name) for member in members if member.issym() or member.islnk()}
        for member in members:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not links.isdisjoint(path.parents):
                raise DataError(f"{root.name} holds '{member.name}', which points outside of it; it was not opened")
            if member.isdir():
                self.listing.folders.add(path.parts)
            elif member.isreg():
                self.members[path.parts] = member
                self.listing.folders.update(path.parts[:depth] for depth in range(1, len(path.parts)))
            else:
                self.listing.passed_over.append(path.parts)
        for parts in self.members:
            self.listing.add(parts)

    def read(self, files: Sequence[Parts]) -> Iterator[tuple[int, bytes]]:
        # in the order of the archive: going back in a compressed one means reading it again from the start
        for i in sorted(range(len(files)), key=lambda i: self.members[files[i]].offset):
            member = self.members[files[i]]
            if member.size > LARGEST_FILE:
                raise DataError(f"{self.root.name}: {member.name} is {member.size:,} bytes long: no image is")
            try:
                file = self.tar.extractfile(member)
                data = b"" if file is None else file.read()
            except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
                raise DataError(f"{self.root.name} is truncated or damaged at {member.name}: {error}") from error
            yield i, data
