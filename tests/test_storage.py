"""What is saved comes back as it was, whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from btfl.storage import load_record, replacing_folder, save_record, temporary_folder, write_atomically


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
