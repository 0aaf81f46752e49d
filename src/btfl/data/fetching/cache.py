"""The folder where fetched data is kept: ``$BTFL_DATA`` if that is set, else the user's cache folder for "btfl"."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

ENVIRONMENT = "BTFL_DATA"

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(what, done, total)``; ``total`` is None where it is not known."""


def silent(what: str, done: int, total: int | None) -> None:
    """Report no progress: the default everywhere."""


def cache_root() -> Path:
    """Return the folder of fetched data; it may not exist yet."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named).expanduser()
    import platformdirs  # not pooch.os_cache, which is another folder on Windows

    return platformdirs.user_cache_path("btfl", appauthor=False)
