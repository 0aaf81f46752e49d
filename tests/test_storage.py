"""What is saved comes back as it was, whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from btfl.errors import StorageError
from btfl.storage import (
    LARGEST_JSON,
    check_inside,
    load_record,
    read_described,
    read_json,
    replacing_folder,
    save_record,
    sealed,
    sweep_temporary,
    temporary_folder,
    write_atomically,
    write_json,
)


@pytest.mark.parametrize(
    "array", [np.float32(3).reshape(()), np.zeros((0, 2)), np.arange(6.0).reshape(2, 3).T, np.arange(4)]
)
def test_arrays_keep_their_shape_and_type(array: np.ndarray, tmp_path: Path) -> None:
    """A scalar too: BatchNorm counts its batches in one."""
    save_record(tmp_path, "thing", "kind", 1, {}, {"array": array})
    _, loaded = load_record(tmp_path, "thing", "kind", 1)
    assert loaded["array"].shape == array.shape
    assert loaded["array"].dtype == array.dtype
    np.testing.assert_array_equal(loaded["array"], array)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "below" / "a.txt"
    write_atomically(path, b"first")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "below" / "kept"
    for content in ("first", "second"):
        with replacing_folder(target) as folder:
            (folder / f"{content}.txt").write_text(content)
    with suppress(RuntimeError), replacing_folder(target) as folder:
        (folder / "third.txt").write_text("half of the thi")
        raise RuntimeError
    assert [path.name for path in target.iterdir()] == ["second.txt"]
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_process_leaves_no_folder_and_what_it_left_is_removed_a_day_later(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from btfl.storage import replacing_folder\n"
        "with replacing_folder(Path(sys.argv[1]) / 'kept') as new:\n"
        "    (new / 'x_train.npy').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name != "kept"
    with temporary_folder(tmp_path):
        assert left.exists()
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(left, (long_ago, long_ago))
    with temporary_folder(tmp_path):
        assert not left.exists()


def test_what_the_json_says_is_covered_by_a_sha256(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_record(tmp_path, "thing", "kind", 1, {"size": 3, "by": {12: "b", 9: "a"}}, {})
    record = read_json(tmp_path / "thing.json")
    assert load_record(tmp_path, "thing", "kind", 1)[0] == {"size": 3, "by": {"12": "b", "9": "a"}}
    (tmp_path / "thing.json").write_text(json.dumps({**record, "fields": {"size": 4}}))
    with pytest.raises(StorageError, match="damaged or was edited"):
        load_record(tmp_path, "thing", "kind", 1)
    older = {key: value for key, value in record.items() if key != "record_sha256"}
    (tmp_path / "thing.json").write_text(json.dumps(older))  # as btfl 0.1.0 wrote it
    with caplog.at_level(logging.INFO):
        assert load_record(tmp_path, "thing", "kind", 1)[0]["size"] == 3
    assert "written by an older btfl" in caplog.text
    (tmp_path / "thing.json").write_text(json.dumps({**older, "recore_sha256": "a"}))
    with pytest.raises(StorageError, match="damaged"):
        load_record(tmp_path, "thing", "kind", 1)


def test_a_seal_whose_name_is_damaged_is_no_older_file(tmp_path: Path) -> None:
    path, name = tmp_path / "run.json", b"record_sha256"
    write_json(path, sealed({"kind": "kind", "version": 1, "more": 3}))
    whole = path.read_bytes()
    assert read_described(path, "kind", 1)["more"] == 3
    start = whole.index(name)
    for bit in range(8 * len(name)):
        flipped = bytearray(whole)
        flipped[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        with pytest.raises(StorageError, match="damaged"):
            read_described(path, "kind", 1)
    older = {"kind": "kind", "version": 1, "sha256": "a" * 64}  # of the tensors beside it
    path.write_text(json.dumps(older))
    assert read_described(path, "kind", 1) == older


def test_saving_a_record_deletes_its_own_old_tensors_only(tmp_path: Path) -> None:
    for name in ("network-a", "network-a-b", "network-[ab]"):
        save_record(tmp_path, name, "kind", 1, {}, {"w": np.zeros(1)})
    save_record(tmp_path, "network-a", "kind", 1, {}, {"w": np.ones(1)})
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    for name in ("network-a", "network-a-b", "network-[ab]"):
        load_record(tmp_path, name, "kind", 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "64 levels"),
        (b"[" * 65 + b"]" * 65, "64 levels"),
        (b'{"a": ' * 5000 + b"1" + b"}" * 5000, "64 levels"),
        (b"[1e999]", "not a finite number"),
        (b"[-Infinity]", "not a finite number"),
        (b"[NaN]", "not a finite number"),
        (b"[" + b"1" * 5000 + b"]", "5,000 digits"),
        (b'{"a": 1, "a": 2}', "there twice"),
        ('{"é": 1}'.encode("utf-16"), "damaged"),
        ('{"é": 1}'.encode("latin-1"), "damaged"),
        (b"", "damaged"),
    ],
)
def test_json_that_is_of_no_use_is_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(StorageError, match=said):
        read_json(tmp_path / "a.json")


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(StorageError, match="64 levels"):
        write_json(tmp_path / "a.json", deep)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="needs pipes and devices in the file system")
def test_only_regular_files_of_limited_size_are_read(tmp_path: Path) -> None:
    pipe, folder, device, sparse = (tmp_path / name for name in ("pipe", "folder", "device", "sparse"))
    os.mkfifo(pipe)
    folder.mkdir()
    device.symlink_to("/dev/zero")
    with sparse.open("wb") as file:
        file.truncate(LARGEST_JSON + 1)
    for path, said in ((pipe, "regular"), (folder, "regular"), (device, "regular"), (sparse, "the limit is")):
        with pytest.raises(StorageError, match=said):
            read_json(path)
    with pytest.raises(StorageError, match="cannot be read"):
        read_json(tmp_path / ("a" * 300))
    with pytest.raises(StorageError, match="cannot be read"):
        read_json(tmp_path / "a\0b")


@pytest.mark.parametrize("tensors", ["..", ".", "/dev/zero", "a/b.safetensors", "", "a\0.safetensors", 3, None, "pipe"])
def test_tensors_are_a_file_beside_the_json(tmp_path: Path, tensors: object) -> None:
    save_record(tmp_path, "thing", "kind", 1, {}, {})
    record = read_json(tmp_path / "thing.json")
    del record["record_sha256"]
    (tmp_path / "thing.json").write_text(json.dumps({**record, "tensors": tensors}))
    with pytest.raises(StorageError, match="does not name its tensors"):
        load_record(tmp_path, "thing", "kind", 1)


def test_only_our_own_temporary_files_are_swept(tmp_path: Path) -> None:
    ours = [".a.json.k3_x9abc.tmp", ".w-1.safetensors.abcdefgh.tmp"]
    theirs = [".notes.tmp", "a.json.abcdefgh.tmp", ".a.txt.abcdefgh.tmp", ".a.json.ABCDEFGH.tmp"]
    for name in (*ours, *theirs):
        (tmp_path / name).touch()
    sweep_temporary(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(theirs)


@pytest.mark.parametrize("what", ["folder", "deep folder", "file", "pipe"])
def test_nothing_is_written_through_what_leads_out_of_a_folder(tmp_path: Path, what: str) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    (run / "training" / "fedavg").mkdir(parents=True)
    elsewhere.mkdir()
    (run / "training" / "fedavg" / "mine").symlink_to(run / "training")  # stays inside
    check_inside(run, "training", "nothing")
    if what == "folder":
        (run / "training").rename(tmp_path / "moved")
        (run / "training").symlink_to(elsewhere)
    elif what == "deep folder":
        (run / "training" / "fedavg" / "checkpoints").symlink_to("../../../elsewhere")
    elif what == "file":
        (run / "training" / "fedavg" / "log.jsonl").symlink_to(elsewhere / "mine.txt")
    else:
        os.mkfifo(run / "training" / "fedavg" / "log.jsonl")
    wanted = "neither a file nor a folder" if what == "pipe" else "a link that leads out of"
    with pytest.raises(StorageError, match=wanted):
        check_inside(run, "tables", "training")
