"""CIFAR-10.1 (Recht et al., 2018): 2,000 new images of CIFAR-10's classes (v6), or 2,021 (v4).

Its npy files are kept exactly as published. Their sha256 and sizes are those that TensorFlow Datasets records
for the authors' repository; the label files were compared with the repository's own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from btfl.data.fetching.cache import Progress, silent
from btfl.data.fetching.download import downloaded
from btfl.data.fetching.stored import Content, Part, StoredSet, read_bytes
from btfl.data.source import Samples
from btfl.errors import DataError

BASE_URL = "https://raw.githubusercontent.com/modestyachts/CIFAR-10.1/master/datasets/"


def _version(version: str, count: int, pixels: str, labels: str) -> StoredSet:
    stem = f"cifar10.1_{version}"
    return StoredSet(
        f"cifar10.1-{version}",
        f"CIFAR-10.1 {version}",
        (
            Part(f"{stem}_data.npy", "images", (count, 32, 32, 3), pixels, of_file=True),
            Part(f"{stem}_labels.npy", "labels", (count,), labels, dtype="int32", of_file=True),
        ),
    )


V6 = _version(
    "v6",
    2_000,
    "2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6",
    "ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448",
)
V4 = _version(
    "v4",
    2_021,
    "5aaedc268df8f4cffca2ac0cf9e608ae1897a8cddb630c7a850a2ea8f6558e75",
    "1f9544300ded199539b6662364ce7fe6c2e1ea9f87408f06db4b1a6184cffb18",
)
VERSIONS = {"v6": V6, "v4": V4}
SUBFOLDERS = ("", "datasets", "CIFAR-10.1/datasets")


def find(version: str, places: list[Path]) -> Path | None:
    """Return the first folder, in or below ``places``, that holds both files of a version."""
    stored = VERSIONS[version]
    for place in places:
        for sub in (*SUBFOLDERS, stored.name):
            if stored.is_in(place / sub):
                return place / sub
    return None


def load(version: str, folder: Path) -> Samples:
    """Load one version from a folder that holds its files; refuses damaged ones."""
    stored = VERSIONS[version]
    problems = stored.problems(folder)
    if problems:
        raise DataError(f"{stored.title} in {folder} is not as published: {'; '.join(problems)}")
    images, labels = (stored.load(folder, part.file) for part in stored.parts)
    return Samples(images, labels.astype(np.int64))


def read_from(version: str, place: Path, progress: Progress = silent) -> Content:
    """Read the two files of a version from a folder the user names."""
    stored = VERSIONS[version]
    if not place.is_dir():
        raise DataError(f"there is no folder {place}")
    folder = find(version, [place])
    if folder is None:
        names = " and ".join(part.file for part in stored.parts)
        raise DataError(f"no {stored.title} in {place}: it must hold {names}")
    progress(f"reading {stored.title}", 0, None)
    return {part.file: read_bytes(folder / part.file) for part in stored.parts}


def from_repository(version: str, progress: Progress) -> Content:
    """Download the two files (6 MB) from the authors' repository."""
    content = {}
    for part in VERSIONS[version].parts:
        with downloaded(BASE_URL + part.file, progress) as path:
            content[part.file] = path.read_bytes()
    return content
