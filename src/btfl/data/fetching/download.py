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

    host = urlsplit(url).hostname
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    for attempt in range(1, TRIES + 1):
        with partial.open("ab") as file:
            part = _Part(file, target.name, progress)
            options: dict[str, Any] = {"headers": part.headers, "hooks": {"response": part.answered}}
            try:
                HTTPDownloader(chunk_size=CHUNK, timeout=timeout, **options)(url, part, None)
            except requests.HTTPError as error:
                answer = error.response
                assert answer is not None  # an HTTPError is an answer
                if answer.status_code != requests.codes.requested_range_not_satisfiable:
                    raise DownloadError(f"{host} answered {answer.status_code} {answer.reason} for {url}") from error
                # The server has nothing beyond the part: either that is all, or it is of another file.
                part.total = part.start if answer.headers.get("Content-Range") == f"bytes */{part.start}" else None
                if part.total is None:
                    file.truncate(0)
                    continue
            except requests.RequestException as error:
                if attempt == TRIES or part.size <= part.start:
                    raise DownloadError(_broken(host, error, part)) from error
                continue
        if part.total in (None, part.size):
            partial.replace(target)
            return target
    raise DownloadError(f"{host} ended {url} early {TRIES} times; run the same again to go on")


class _Part:
    """The file that pooch writes to: what has arrived of a download, and what the server says of the rest."""

    def __init__(self, file: BinaryIO, name: str, progress: Progress) -> None:
        self.file, self.name, self.progress = file, name, progress
        self.start = self.size = os.fstat(file.fileno()).st_size
        self.total: int | None = None
        self.headers = {"User-Agent": "btfl", "Accept-Encoding": "identity"}
        if self.start:
            self.headers["Range"] = f"bytes={self.start}-"

    def answered(self, response: requests.Response, **_: object) -> None:
        """Take the file's length from the answer; one that is not the rest of the file replaces what has arrived."""
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


def _broken(host: str | None, error: BaseException, part: _Part) -> str:
    while deeper := error.__cause__ or error.__context__:  # requests wraps urllib3, which wraps what happened
        error = deeper
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if part.size or part.total:
        return f"the connection to {host} broke ({reason}); {part.size:,} bytes are kept, run the same again to go on"
    return f"could not reach {host} ({reason}): no network?"
