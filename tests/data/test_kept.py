"""What takes long is made once: kept by what it was made from, checked when it is read, within a limit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl.data import streams
from btfl.data.catalogue import load_source
from btfl.data.kept import FOLDER, LIMIT, Kept
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.source import Source
from btfl.data.streams import Manifest, Stream, StreamSettings, make_manifest, render
from btfl.errors import InputError

Told = pytest.LogCaptureFixture


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "kept", 1_000_000)


@pytest.fixture(scope="module")
def source() -> Source:
    return load_source("digits", shift="none")


@pytest.fixture(scope="module")
def manifest(source: Source) -> Manifest:
    partition = make_partition(source, PartitionSettings(4, alpha=0.3), 0)
    return make_manifest(source, partition, StreamSettings(corruptions=("gaussian_noise", "contrast")), 0)


def entries(kept: Kept) -> list[Path]:
    return sorted(kept.folder.glob("*"))


def test_arrays_are_found_by_their_key_alone(kept: Kept) -> None:
    rows: dict[str, NDArray[Any]] = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.uint8)}
    assert kept.find("rows", 1) is None
    kept.keep(rows, "rows", 1)
    found = kept.find("rows", 1)
    assert found is not None
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in rows.items()
    }
    assert kept.find("rows", 2) is None
    assert kept.find("rows") is None


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_entry_is_removed_with_a_warning(kept: Kept, damage: bytes | None, caplog: Told) -> None:
    kept.keep({"a": np.ones(100)}, "key")
    (path,) = entries(kept)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content) if damage is None else damage)
    assert kept.find("key") is None
    assert "damaged and made again" in caplog.text
    assert not entries(kept)


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 25_000)
    for number in range(3):
        kept.keep({"a": np.zeros(1_000)}, number)  # 8 kB each
        os.utime(max(entries(kept), key=lambda path: path.stat().st_mtime), (number, number))
    assert kept.find(0) is not None  # used now
    kept.keep({"a": np.zeros(1_000)}, 3)
    assert [kept.find(number) is not None for number in range(4)] == [True, False, True, True]
    kept.keep({"a": np.zeros(10_000)}, "too large for all of it")
    assert len(entries(kept)) == 3


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: Told) -> None:
    (tmp_path / "file").write_text("in the way")
    kept = Kept(tmp_path / "file", 1_000)
    kept.keep({"a": np.zeros(3)}, "key")
    assert "nothing can be kept in" in caplog.text
    assert kept.find("key") is None


def test_the_usual_folder_and_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "data"))
    monkeypatch.delenv(LIMIT)
    assert Kept.usual() == Kept(tmp_path / "data" / "kept", 2_000_000_000)
    monkeypatch.setenv(FOLDER, str(tmp_path / "other"))
    monkeypatch.setenv(LIMIT, "3")
    assert Kept.usual() == Kept(tmp_path / "other", 3_000_000)
    monkeypatch.setenv(LIMIT, "much")
    with pytest.raises(InputError, match="whole number of megabytes"):
        Kept.usual()
    nothing = Kept(tmp_path / "nothing", 0)
    nothing.keep({"a": np.zeros(3)}, "key")
    assert not nothing.folder.exists()


def same(one: Mapping[str, Stream], other: Mapping[str, Stream]) -> bool:
    return list(one) == list(other) and all(
        (one[name].values == other[name].values).all()
        and (one[name].labels == other[name].labels).all()
        and (one[name].external == other[name].external).all()
        for name in one
    )


def test_corrupted_images_are_rendered_once(
    source: Source, manifest: Manifest, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = render(source, manifest, 1)
    assert same(render(source, manifest, 1, kept), plain)
    (path,) = entries(kept)
    with monkeypatch.context() as patched:
        patched.setattr(streams, "corrupt", None)  # would fail if it were called
        assert same(render(source, manifest, 1, kept), plain)
    path.write_bytes(path.read_bytes()[:-9])
    assert same(render(source, manifest, 1, kept), plain)  # made again
    assert entries(kept) == [path]
    render(source, manifest, 2, kept)
    assert len(entries(kept)) == 2
