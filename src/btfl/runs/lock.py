"""One process at a time in the folder of a run or training: a lock of the kernel's, which a kill releases too."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from btfl.errors import StorageError
from btfl.storage import read_json, write_json


@contextmanager
def locked(folder: Path, lock: Path, holder: Path) -> Iterator[None]:
    """Hold a folder for the time of the block; if another process holds it, say which.

    Parameters
    ----------
    folder : made if there is none, and removed again if nothing was written into it
    lock, holder : files in it: the one that is locked, and one that says who holds it
    """
    from filelock import FileLock, Timeout  # here: reading a run needs no lock

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except Timeout:
        raise StorageError(
            f"another process is at work in {folder}: {_who(holder)}. Wait until it ends, or name another folder"
        ) from None
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(holder, {"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        yield
    finally:
        for path in (holder, lock):  # while it is held: whoever opened the lock meanwhile sees that it is gone
            with suppress(OSError):  # what was trained is not lost for that
                path.unlink(missing_ok=True)
        held.release()
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


def _who(holder: Path) -> str:
    try:
        found = read_json(holder)
        return f"process {int(found['pid'])} on {str(found['host'])[:80]!r}, since {str(found['since'])[:40]}"
    except (StorageError, LookupError, TypeError, ValueError):
        return "it has not yet said which"
