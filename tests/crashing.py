"""Killing a piece of work at chosen moments: a child process ends itself with SIGKILL at its n-th touch of a file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

_TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.chmod"}


def _child(work: Callable[[], object], place: str, at: int | None, told: Path | None) -> None:
    numbers, seen = count(1), 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in _TOUCHES and place in str(arguments[0]):
            seen = next(numbers)
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work()
    if told is not None:
        touches = seen
        told.write_text(str(touches))
    os._exit(0)


def touches(work: Callable[[], object], place: Path, told: Path) -> int:
    """Do the work in a child; return how often it touches files below a folder."""
    process = multiprocessing.get_context("fork").Process(target=_child, args=(work, str(place), None, told))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return int(told.read_text())


def killed(work: Callable[[], object], place: Path, at: int) -> None:
    """Do the work in a child that is killed at its n-th touch of a file below a folder."""
    process = multiprocessing.get_context("fork").Process(target=_child, args=(work, str(place), at, None))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def moments(total: int, wanted: int = 20) -> list[int]:
    """Return so many moments, spread over the work."""
    assert total >= wanted, f"there are only {total} moments"
    return [1 + place * (total - 1) // (wanted - 1) for place in range(wanted)]
