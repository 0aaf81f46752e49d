"""Downloading one file over HTTP with pooch, and what pooch does not do: going on with a broken download.

What has arrived is kept as ``<name>.part``; the next try asks the server for the rest only. The caller verifies the
content: a part of another file does not survive that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from btfl.data.fetching.cache import Progress, cache_root, silent
from btfl.errors import DataError

if TYPE_CHECKING:
    import requests

TIMEOUT = 10.0  # seconds to connect, and the longest silence while reading
TRIES = 3  # a connection that breaks after some bytes have arrived is tried again
CHUNK = 1 << 14  # the most that a broken connection loses


class DownloadError(DataError):
    """A file could not be downloaded; what has arrived is kept for the next try."""


@contextmanager
def downloaded(url: str, progress: Progress = silent) -> Iterator[Path]:
    """Download a file into the cache for the time of the block; only what is incomplete is kept after it."""
    path = download(url, cache_root() / "downloads" / Path(urlsplit(url).path).name, progress)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def download(url: str, target: Path, progress: Progress = silent, timeout: float = TIMEOUT) -> Path:
    """Download ``url`` to ``target``, going on from ``target.part`` if there is one.

    Parameters
    ----------
    url : http or https
    target : the file to write; its folder is made if there is none
    progress : called with the file's name, the bytes that have arrived and all bytes
    timeout : seconds without an answer after which the connection counts as broken

    Returns
    -------
    ``target``, complete; else a ``DownloadError`` names the host and the reason
    """
    import requests
    from pooch import HTTPDownloader

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    for attempt in range(1, TRIES + 1):
        with partial.open("ab") as file:
            part = _Part(file, target.name, progress)
            request: dict[str, Any] = {"headers": part.headers, "hooks": {"response": part.answered}}
            try:
                HTTPDownloader(chunk_size=CHUNK, timeout=timeout, **request)(url, part, None)
            except requests.RequestException as error:
                if part.useless:
                    file.truncate(0)
                elif attempt == TRIES or part.size <= part.start:
                    raise DownloadError(_reason(url, error, part)) from error
                continue
        if part.total in (None, part.size):
            partial.replace(target)
            return target
    raise DownloadError(f"{url} ended early {TRIES} times; run the same again to go on")


class _Part:
    """The file that pooch writes to: what has arrived of a download, and what the server says of the rest."""

    def __init__(self, file: BinaryIO, name: str, progress: Progress) -> None:
        self.file, self.name, self.progress = file, name, progress
        self.start = self.size = os.fstat(file.fileno()).st_size
        self.total: int | None = None
        self.useless = False
        self.headers = {"User-Agent": "btfl", "Accept-Encoding": "identity"}
        if self.start:
            self.headers["Range"] = f"bytes={self.start}-"

    def answered(self, response: requests.Response, **_: object) -> None:
        """Take the file's length from the answer; one that is not the rest of the file replaces what has arrived."""
        self.useless = response.status_code == 416  # there is no rest: a part of another file, or all of this one
        if not response.ok or response.is_redirect:
            return
        if self.start and not response.headers.get("Content-Range", "").startswith(f"bytes {self.start}-"):
            self.file.truncate(0)
            self.start = self.size = 0
        length = response.headers.get("Content-Length", "")
        self.total = self.start + int(length) if length.isdigit() else None
        self.progress(self.name, self.size, self.total)

    def write(self, block: bytes) -> None:
        self.file.write(block)
        self.size += len(block)
        self.progress(self.name, self.size, self.total)

    def flush(self) -> None:
        """Do nothing: pooch flushes after every block."""


def _reason(url: str, error: requests.RequestException, part: _Part) -> str:
    host = urlsplit(url).hostname
    if error.response is not None:
        return f"{host} answered {error.response.status_code} {error.response.reason} for {url}"
    cause: BaseException = error
    while deeper := cause.__cause__ or cause.__context__:  # requests wraps urllib3, which wraps what happened
        cause = deeper
    words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    if part.size or part.total:
        return f"the connection to {host} broke ({words}); {part.size:,} bytes are kept, run the same again to go on"
    return f"could not reach {host} ({words}): no network?"
