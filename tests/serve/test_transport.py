"""Head and body of an answer are sent at once, in their order, and nothing is held back for longer than a turn."""

from __future__ import annotations

import asyncio

import pytest

from btfl.serve.transport import OneWrite

HEAD, BODY = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"body"


class Recorder:
    """A transport that notes what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def written(*parts: bytes, turns_after: int = 0, close: bool = False) -> list[bytes]:
    """Return what is on the wire after some writes, turns of the loop and an end."""

    async def go() -> list[bytes]:
        recorder = Recorder()
        transport = OneWrite(recorder, asyncio.get_running_loop())
        for part in parts:
            transport.write(part)
        for _ in range(turns_after):
            await asyncio.sleep(0)
        if close:
            transport.close()
            assert transport.is_closing()
        return recorder.writes

    return asyncio.run(go())


def test_head_and_body_are_one_write() -> None:
    assert written(HEAD, BODY) == [HEAD + BODY]
    assert written(HEAD, BODY, turns_after=2) == [HEAD + BODY]


def test_answers_and_their_parts_keep_their_order() -> None:
    assert written(HEAD, BODY, b"more", HEAD, BODY) == [HEAD + BODY, b"more", HEAD + BODY]


@pytest.mark.parametrize("close", [True, False])
def test_a_head_whose_body_comes_later_is_not_held_back(close: bool) -> None:
    assert written(HEAD, turns_after=0 if close else 1, close=close) == [HEAD]
