"""CIFAR-10 as a source, with CIFAR-10.1 or an npz as its other domain."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.data.fetching import fetch, get_cifar10
from btfl.data.fetching.cache import cache_root
from btfl.errors import DataError, InputError
from fake_cifar import fake_cifar101

REAL_CACHE = cache_root()


def test_without_cifar10_1_the_shift_is_none_and_the_notes_say_so(kept: Path) -> None:
    source = load_source("cifar10")
    assert source.shifted is None
    assert "CIFAR-10.1 is not available" in source.notes[0]
    assert "corrupted throughout" in source.notes[0]
    with pytest.raises(DataError, match=r"btfl data get cifar10\.1"):
        load_source("cifar10", shift="cifar10.1")
    with pytest.raises(InputError, match="it knows cifar10"):
        load_source("cifar10", shift="cifar11")


def test_cifar10_1_is_used_once_it_is_available_v6_before_v4(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_cifar101(monkeypatch, "v4", tmp_path / "101")
    assert fetch.get("cifar10.1-v4", folder).name == "cifar10.1-v4"
    assert load_source("cifar10").shift_name == "CIFAR-10.1 v4"
    fake_cifar101(monkeypatch, "v6", tmp_path / "repository" / "datasets")
    fetch.get("cifar10.1", tmp_path / "repository")
    source = load_source("cifar10")
    assert source.shift_name == "CIFAR-10.1 v6"
    assert source.shifted is not None
    assert len(source.shifted) == 30
    assert load_source("cifar10", shift="cifar10.1-v4").shift_name == "CIFAR-10.1 v4"
    assert load_source("cifar10", shift="none").shifted is None


@pytest.mark.parametrize(
    ("name", "title"), [("cinic10-tiles.npz", "CINIC-10 (ImageNet part)"), ("photos.npz", "photos")]
)
def test_an_npz_can_be_the_other_domain(kept: Path, tmp_path: Path, name: str, title: str) -> None:
    order = get_cifar10.CLASSES[::-1]
    np.savez(tmp_path / name, x=np.zeros((3, 32, 32, 3), np.uint8), y=np.array([0, 1, 9]), classes=np.array(order))
    source = load_source("cifar10", shift=tmp_path / name)
    assert source.shift_name == title
    assert source.shifted is not None
    assert source.shifted.labels.tolist() == [9, 8, 0]  # matched by name, not by place


@pytest.mark.skipif(
    not get_cifar10.CIFAR10.is_in(REAL_CACHE / "cifar10"), reason="CIFAR-10 is not in the cache: btfl data get cifar10"
)
def test_the_real_cifar10_is_whole_and_quick_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BTFL_DATA", str(REAL_CACHE))
    assert fetch.check("cifar10").problems == ()
    start = time.perf_counter()
    source = load_source("cifar10", shift="none")
    assert time.perf_counter() - start < 1.0
    np.testing.assert_array_equal(np.bincount(source.pool.labels), np.full(10, 5_000))
    np.testing.assert_allclose(source.pool.values.mean(axis=(0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)
