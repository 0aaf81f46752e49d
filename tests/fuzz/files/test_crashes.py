"""A training killed before any one of its file operations: run again, it ends the same and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from btfl.engines import LocalEngine, train_federation
from btfl.errors import InputError
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings
from small import digits

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
KILLED = 77


def train(folder: Path) -> str:
    settings = TrainingSettings.for_model("mlp", rounds=2, local_epochs=1, augment=False, participation=0.5)
    return train_federation(
        make_recipe("fedavg", settings, (8, 8, 1), 10), digits(), LocalEngine(), folder=folder
    ).digest()


def killed_before(operation: int, folder: Path, half: bool) -> bool:
    """Train in a process that is gone just before an operation; ``half``: a file being written is cut in half then."""
    process = os.fork()
    if process == 0:
        try:
            _die_before(operation, folder, half)
            train(folder)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, KILLED), f"operation {operation}: the run ended with {code}"
    return code == KILLED


def _die_before(operation: int, folder: Path, half: bool) -> None:
    left, inside, fsync = operation, os.fspath(folder), os.fsync

    def one_more() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(KILLED)

    def watch(event: str, given: tuple[Any, ...]) -> None:
        changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod") or (
            event == "open" and isinstance(given[2], int) and given[2] & WRITES
        )
        path = given[0] if given else None
        here = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(inside)
        of_a_tree = event in ("os.remove", "os.rmdir") and given[1] != -1  # named from the folder it is in
        if changes and (here or of_a_tree):
            one_more()

    def cut_short(handle: int) -> None:
        if left == 0 and half:
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
        one_more()
        fsync(handle)

    sys.addaudithook(watch)
    os.fsync = cut_short  # type: ignore[assignment]


def listing(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def check(points: Iterable[int], folder: Path) -> tuple[int, bool]:
    """Kill at these points, run again, compare; return how many there were, and whether the last run was not killed."""
    digest, whole, tried = train(folder / "whole"), listing(folder / "whole"), 0
    for point in points:
        place = folder / f"{point}"
        if not killed_before(point, place, half=point % 2 == 0):
            return tried, True
        tried += 1
        assert train(place) == digest, f"killed before operation {point}"
        assert listing(place) == whole, f"killed before operation {point}: {sorted(listing(place) ^ whole)}"
    return tried, False


def test_killed_at_some_points(tmp_path: Path) -> None:
    tried, _ = check((3, 12, 19, 50, 90), tmp_path)
    print(f"{tried} crash points: all resumed, no stray file")


@pytest.mark.slow
def test_killed_at_every_point(tmp_path: Path) -> None:
    tried, finished = check(range(10_000), tmp_path)
    print(f"{tried} crash points: all resumed, no stray file")
    assert finished


def failing(name: str, at: int, place: Path, patched: pytest.MonkeyPatch) -> bool:
    """Train while the ``at``-th call of an operation of ``os`` fails; return whether there was such a call."""
    real, left = getattr(os, name), at

    def fails(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError(28, "No space left on device")
        return real(*given, **named)

    with patched.context() as only_here:
        only_here.setattr(os, name, fails)
        # a client whose own state could not be read has no bundle at the end, and gets another chance
        with suppress(OSError, InputError):
            train(place)
    return left < 0


def check_failing(points: Iterable[tuple[str, int]], folder: Path, patched: pytest.MonkeyPatch) -> Counter[str]:
    """Fail at these points, run again, compare; return how many calls of each operation there were."""
    digest, whole, tried = train(folder / "whole"), listing(folder / "whole"), Counter[str]()
    ended = set[str]()
    for name, at in points:
        place = folder / f"{name}-{at}"
        if name in ended or not failing(name, at, place, patched):
            ended.add(name)
            continue
        tried[name] += 1
        assert train(place) == digest
        differing = listing(place) ^ whole
        assert not differing, f"{name} {at}: {sorted(differing)}"
        shutil.rmtree(place)
    return tried


def test_a_failing_operation_is_an_error_and_the_next_run_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = (
        ("fsync", 0), ("fsync", 5), ("fsync", 9), ("replace", 3), ("mkdir", 2), ("unlink", 0), ("rmdir", 0),
        ("open", 2), ("open", 40),
    )  # fmt: skip
    assert check_failing(points, tmp_path, monkeypatch).total() == len(points)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fsync", "replace", "mkdir", "unlink", "rmdir", "open", "chmod"])
def test_every_operation_fails_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = check_failing(((name, at) for at in range(1000)), tmp_path, monkeypatch)
    print(f"{tried.total()} failing calls of {name}: all resumed, no stray or missing file")
    assert 0 < tried.total() < 1000
