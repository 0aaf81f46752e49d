"""Downloading one file over HTTP: resumable, with a progress callback, and a plain sentence when it fails.

What has arrived is kept beside the target as ``<name>.part``; the next try asks the server for the rest only.
The caller verifies the whole file: a part that a changed file was appended to does not survive that.
"""

from __future__ import annotations

import errno
import http.client
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from btfl.data.fetching.cache import Progress, silent
from btfl.errors import DataError, StorageError

TIMEOUT = 10.0  # seconds to connect, and the longest silence while reading
TRIES = 3  # a connection that breaks after giving something is taken up again
CHUNK = 1 << 18
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)


class DownloadError(DataError):
    """A file could not be downloaded; what has arrived is kept for the next try."""


def download(url: str, target: Path, progress: Progress = silent, timeout: float = TIMEOUT) -> Path:
    """Bring ``url`` to ``target``, going on from ``target.part`` where there is one."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise DownloadError(f"only http and https can be downloaded, not {url}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    for attempt in range(1, TRIES + 1):
        before = _size(partial)
        try:
            whole = _fetch(url, partial, progress, timeout)
        except urllib.error.HTTPError as error:
            error.close()
            raise DownloadError(f"{parts.hostname} answered {error.code} {error.reason} for {url}") from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                raise StorageError(f"cannot write {partial}: {error.strerror}") from error
            if attempt == TRIES or _size(partial) <= before:
                raise DownloadError(_unreachable(parts.hostname, error, _size(partial))) from error
            continue
        if whole:
            partial.replace(target)
            return target
    raise DownloadError(
        f"{parts.hostname} broke off before the end of {url} {TRIES} times; run the same again to go on"
    )


def _fetch(url: str, partial: Path, progress: Progress, timeout: float) -> bool:
    """Append what is missing to ``partial``; say whether it is now whole."""
    have = _size(partial)
    headers = {"User-Agent": "btfl", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        # nothing lies beyond what we have: it is whole, or a part of some other file
        length = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        error.close()
        if length and int(length[1]) == have:
            return True
        partial.unlink()
        return _fetch(url, partial, progress, timeout)
    with response:
        start, total = _extent(response)
        name = Path(urllib.parse.urlsplit(url).path).name
        if start not in (0, have):
            raise http.client.HTTPException("the server sent another part of the file than asked for")
        with partial.open("r+b" if start else "wb") as file:
            file.seek(start)
            done = start
            progress(name, done, total)
            while block := response.read(CHUNK):
                file.write(block)
                done += len(block)
                progress(name, done, total)
    return total is None or done == total


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Where the answer begins in the file, and how long the whole file is."""
    if response.status == 206:
        ranged = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if ranged is None:
            raise http.client.HTTPException("the server sent a part of the file without saying which")
        return int(ranged[1]), None if ranged[2] == "*" else int(ranged[2])
    length = response.headers.get("Content-Length")
    return 0, int(length) if length and length.isdigit() else None


def _unreachable(host: str | None, error: Exception, kept: int) -> str:
    reason = getattr(error, "reason", None) or error
    said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    if kept:
        return f"the connection to {host} broke ({said}); {kept:,} bytes are kept, run the same again to go on"
    return f"could not reach {host} ({said}): no network?"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
