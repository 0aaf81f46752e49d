"""What is kept in the cache is checked byte by byte, and damage is described."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.data.fetching import fetch
from btfl.errors import StorageError
from fake_cifar import Arrays


def problem() -> str:
    (said,) = fetch.check("cifar10").problems
    return said


def test_check_finds_a_flipped_byte_and_says_where(kept: Path) -> None:
    path = kept / "x_train.npy"
    data = bytearray(path.read_bytes())
    data[128 + 3072 * 57 + 11] ^= 4
    path.write_bytes(data)
    assert problem() == "x_train.npy is damaged (a flipped byte or more) within images 56 to 57"
    (kept / "manifest.json").unlink()
    assert "x_train.npy does not hold the training images of CIFAR-10: damaged, or" in problem()


def test_check_finds_a_flipped_label(kept: Path) -> None:
    path = kept / "y_train.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert problem() == "y_train.npy is damaged (a flipped byte or more) within labels 198 to 199"


def test_check_finds_a_truncated_file(kept: Path) -> None:
    path = kept / "x_test.npy"
    path.write_bytes(path.read_bytes()[:-100])
    assert problem().startswith("x_test.npy is truncated: ")
    path.write_bytes(b"")
    assert problem().startswith("x_test.npy is truncated: ")
    path.unlink()
    assert problem() == "x_test.npy is missing"


def test_check_finds_a_wrong_label_file(kept: Path, fake: Arrays) -> None:
    np.save(kept / "y_train.npy", (fake["y_train.npy"] + 1) % 10)
    assert problem().startswith("y_train.npy is a wrong label file: it holds other labels")
    with pytest.raises(StorageError, match=r"y_train\.npy does not hold.*btfl data get cifar10"):
        load_source("cifar10")
    np.save(kept / "y_train.npy", fake["y_test.npy"])
    assert problem() == "y_train.npy is a wrong label file: it holds uint8 of shape (40,), not uint8 of shape (200,)"
