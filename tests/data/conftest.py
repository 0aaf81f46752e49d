"""A cache of its own for every test, and small datasets to fill it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from btfl.data.fetching import fetch
from fake_cifar import Arrays, fake_cifar10, official
from local_server import Server, serving


@pytest.fixture
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fake(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """A small CIFAR-10, which btfl is made to take for the real one."""
    return fake_cifar10(monkeypatch)


@pytest.fixture
def kept(fake: Arrays, tmp_path: Path) -> Path:
    """The folder of the cache that holds it."""
    return fetch.get("cifar10", official(fake, tmp_path / "bin")).folder


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of a million random bytes."""
    with serving(np.random.default_rng(3).bytes(1_000_000)) as running:
        yield running
