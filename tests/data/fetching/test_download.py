"""Downloads go on where they broke off, and fail in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from btfl.data.fetching.download import TRIES, DownloadError, download
from local_server import Server


def test_a_download_goes_on_where_the_last_one_ended(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "got.bin"
    (tmp_path / "got.bin.part").write_bytes(server.data[:300_000])
    seen: list[tuple[int, int | None]] = []
    download(server.url, target, lambda what, done, total: seen.append((done, total)))
    assert server.asked == ["bytes=300000-"]
    assert target.read_bytes() == server.data
    assert seen[0] == (300_000, 1_000_000)
    assert seen[-1] == (1_000_000, 1_000_000)
    assert list(tmp_path.iterdir()) == [target]


def test_a_connection_that_breaks_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.break_after = [400_000, 100_000]
    target = download(server.url, tmp_path / "got.bin")
    first, second, third = server.asked
    assert first is None
    assert second is not None
    assert third is not None
    assert 350_000 < int(second[6:-1]) <= 400_000 < int(third[6:-1]) <= 500_000  # all but the last block was kept
    assert target.read_bytes() == server.data


def test_one_that_keeps_breaking_is_given_up_and_what_came_is_kept(server: Server, tmp_path: Path) -> None:
    server.break_after = [100_000] * TRIES
    with pytest.raises(DownloadError, match="run the same again"):
        download(server.url, tmp_path / "got.bin")
    assert 0.8 * 100_000 * TRIES < (tmp_path / "got.bin.part").stat().st_size <= 100_000 * TRIES
    assert download(server.url, tmp_path / "got.bin").read_bytes() == server.data


def test_a_server_without_ranges_sends_all_of_it_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "got.bin.part").write_bytes(b"other data altogether")
    assert download(server.url, tmp_path / "got.bin").read_bytes() == server.data


@pytest.mark.parametrize("length", [1_000_000, 1_000_010])
def test_a_part_that_is_whole_or_too_long_is_seen_through(server: Server, tmp_path: Path, length: int) -> None:
    (tmp_path / "got.bin.part").write_bytes((server.data + b"0123456789")[:length])
    assert download(server.url, tmp_path / "got.bin").read_bytes() == server.data


def test_what_the_server_refuses_is_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="answered 404"):
        download(server.url.replace("cifar-10-binary.tar.gz", "absent"), tmp_path / "got.bin")
    with pytest.raises(DownloadError, match="could not"):
        download("file:///etc/hostname", tmp_path / "got.bin")
