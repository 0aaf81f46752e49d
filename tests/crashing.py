"""Killing a piece of work at chosen moments: a child process ends itself with SIGKILL at its n-th touch of a file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.chmod"}


def _child(work: Callable[[], object], place: str | None, at: int | None, told: Path | None) -> None:
    seen = 0

    def moment() -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def touched(event: str, arguments: tuple[object, ...]) -> None:
        if event in _TOUCHES and place is not None and place in str(arguments[0]):
            moment()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            moment()

    if place is None:
        sys.setprofile(called)
    else:
        sys.addaudithook(touched)
    work()
    sys.setprofile(None)
    if told is not None:
        found = seen
        told.write_text(str(found))
    os._exit(0)


def touches(work: Callable[[], object], place: Path | None, told: Path) -> int:
    """Do the work in a child; return how often it touches files below a folder. None: how many calls it makes."""
    process = multiprocessing.get_context("fork").Process(
        target=_child, args=(work, None if place is None else str(place), None, told)
    )
    process.start()
    process.join(300)
    assert process.exitcode == 0
    return int(told.read_text())


def killed(work: Callable[[], object], place: Path | None, at: int) -> bool:
    """Do the work in a child that is killed at its n-th touch of a file below a folder; None: at its n-th call.

    Returned is whether it was: the number of calls is not always the same, and it may have ended before.
    """
    process = multiprocessing.get_context("fork").Process(
        target=_child, args=(work, None if place is None else str(place), at, None)
    )
    process.start()
    process.join(300)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def moments(total: int, wanted: int = 20) -> list[int]:
    """Return so many moments, spread over the work; the last is a little before its end."""
    assert total >= 2 * wanted, f"there are only {total} moments"
    return [1 + place * (total - 2) // (wanted - 1) for place in range(wanted)]
