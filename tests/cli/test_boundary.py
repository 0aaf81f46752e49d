"""Every error ends in a sentence and an exit code that says whose it is."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from btfl.cli import boundary, main
from btfl.errors import BtflError, InputError, StorageError, UnknownNameError


@pytest.fixture(autouse=True)
def _handlers_as_they_were() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def raised(error: BaseException, monkeypatch: pytest.MonkeyPatch, *options: str) -> object:
    """Return the exit code of a command that fails with this error."""

    def fail() -> None:
        raise error

    monkeypatch.setattr("btfl.methods.registry.find_method", lambda name: fail())
    monkeypatch.setattr(sys, "argv", ["btfl", *options, "methods", "btfl"])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("alpha is wrong"), 2, "btfl: alpha is wrong"),
        (UnknownNameError("method", "x", ["btfl"]), 2, "unknown method 'x'"),
        (StorageError("x is damaged"), 2, "x is damaged"),
        (BtflError("clients failed"), 1, "clients failed"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "x: No space left on device; make space"),
        (OSError(errno.EROFS, "Read-only file system", "x"), 1, "x: Read-only file system; choose a place"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 1, "x: Permission denied"),
        (FileExistsError(errno.EEXIST, "File exists", "x"), 2, "a file is where a folder is needed"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), 2, "File name too long; choose a shorter one"),
        (
            IsADirectoryError(errno.EISDIR, "Is a directory", ".x.tmp", None, "x"),
            2,
            "btfl: x: Is a directory; a folder",
        ),
        (OSError("no number"), 1, "no number"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), 2, "not UTF-8"),
        (MemoryError(), 1, "not enough memory"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
        (EOFError("early"), 70, "this is a bug in btfl: EOFError: early"),
        (TypeError("oh"), 70, "this is a bug in btfl: TypeError: oh. Please report it with what `btfl --debug"),
    ],
)
def test_one_sentence_and_the_right_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")  # so that this file is no module of the user's own
    monkeypatch.setattr(boundary, "_own_code", lambda error: None)
    assert raised(error, monkeypatch) == code
    printed = capfd.readouterr().err
    assert said in printed
    assert "Traceback" not in printed
    assert len(printed.strip().splitlines()) == 1


def test_debug_shows_the_trace(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert raised(InputError("wrong"), monkeypatch, "--debug") == 2
    assert "Traceback" in capfd.readouterr().err
    assert raised(InputError("wrong"), monkeypatch) == 2
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("code", ["import a_package_nobody_has", "1 / 0", "x = = 1"])
def test_a_mistake_in_a_module_of_the_users_own_is_said_to_be_there(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_that_is_broken.py").write_text(f"\n{code}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["btfl", "methods", "mine_that_is_broken:Mine"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "mine_that_is_broken.py, line 2, which is not part of btfl" in capfd.readouterr().err


def test_a_terminal_that_is_not_utf_8_gets_other_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "argv", ["btfl", "methods", "coherent"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    terminal.seek(0)
    assert "Settings" in terminal.read()


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_ctrl_c_once_and_again(times: int, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from btfl.cli import main; main()",
        "train",
        "demo",
        "--rounds",
        "5000",
        "-w",
        "2",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.rglob("checkpoint.json")) and time.monotonic() < deadline:
            time.sleep(0.2)
        for _ in range(times):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.05)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in said
    assert process.returncode in ((130,) if times == 1 else (130, -signal.SIGINT))
