"""Small CIFAR-10 and CIFAR-10.1 of random pixels in all their forms, which btfl is made to take for the real ones."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from btfl.data.fetching import get_cifar10, get_cifar101
from btfl.data.fetching.stored import Part, StoredSet

EACH = 40  # images in a fake batch, instead of 10,000
Arrays = dict[str, np.ndarray[Any, np.dtype[np.uint8]]]


def fake_cifar10(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """Replace what CIFAR-10 must hold, and return that."""
    rng = np.random.default_rng(1)
    arrays = {}
    parts = []
    for real in get_cifar10.CIFAR10.parts:
        shape = (EACH * (5 if "train" in real.file else 1), *real.shape[1:])
        array = rng.integers(0, 256 if real.unit == "images" else 10, shape, dtype=np.uint8)
        arrays[real.file] = array
        parts.append(Part(real.file, real.what, shape, hashlib.sha256(array.tobytes()).hexdigest()))
    monkeypatch.setattr(get_cifar10, "CIFAR10", StoredSet("cifar10", "CIFAR-10", tuple(parts)))
    return arrays


def _batches(arrays: Arrays) -> Iterator[tuple[str, Any, Any]]:
    for i, name in enumerate(get_cifar10.BATCHES):
        kind, start = ("train", i * EACH) if i < 5 else ("test", 0)
        yield name, arrays[f"x_{kind}.npy"][start : start + EACH], arrays[f"y_{kind}.npy"][start : start + EACH]


def official(arrays: Arrays, folder: Path) -> Path:
    """Write the official binary files."""
    folder.mkdir(parents=True)
    for name, x, y in _batches(arrays):
        rows = np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(EACH, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


def tfjs(arrays: Arrays, folder: Path) -> Path:
    """Write the PNG and JSON files of the npm package."""
    folder.mkdir(parents=True)
    for name, x, _ in _batches(arrays):
        Image.fromarray(x.reshape(EACH, 1024, 3)).save(folder / f"{name}.png")
    for kind in ("train", "test"):
        (folder / f"{kind}_lables.json").write_text(json.dumps(arrays[f"y_{kind}.npy"].tolist()))
    return folder


def archive(folder: Path, path: Path, inside: str) -> Path:
    """Pack a folder as a tar."""
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, arcname=inside)
    return path


def fake_cifar101(monkeypatch: pytest.MonkeyPatch, version: str, folder: Path) -> Path:
    """Replace what a version of CIFAR-10.1 must hold, and write its files."""
    rng = np.random.default_rng(4)
    contents = (rng.integers(0, 256, (30, 32, 32, 3), np.uint8), rng.integers(0, 10, 30).astype(np.int32))
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for part, array in zip(get_cifar101.VERSIONS[version].parts, contents, strict=True):
        buffer = io.BytesIO()
        np.save(buffer, array)
        (folder / part.file).write_bytes(buffer.getvalue())
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        parts.append(Part(part.file, part.what, array.shape, digest, part.dtype, of_file=True))
    stored = StoredSet(f"cifar10.1-{version}", f"CIFAR-10.1 {version}", tuple(parts))
    monkeypatch.setitem(get_cifar101.VERSIONS, version, stored)
    return folder
