"""Questions to Flower nodes and their answers, within a time limit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from btfl.checks import printable

_SHORTEST, _LONGEST = 0.02, 1.0  # seconds between two looks for answers


class Inbox:
    """Answers as they come in, by the ticket of their question."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._open: set[str] = set()
        self._replies: dict[str, Message] = {}
        self._pause = _SHORTEST

    def push(self, message: Message) -> str:
        """Send a message; give its ticket, which is empty if it could not be sent."""
        ticket = next(iter(self._grid.push_messages([message])), None) or ""
        if ticket:
            self._open.add(ticket)
        return ticket

    def take(self, ticket: str) -> Message | None:
        """Return the answer, if it is there."""
        return self._replies.pop(ticket, None)

    def forget(self, ticket: str) -> None:
        """Ignore an answer that may still come."""
        self._open.discard(ticket)

    def wait(self) -> None:
        """Look for answers; if there are none, pause, longer each time."""
        replies = list(self._grid.pull_messages(sorted(self._open))) if self._open else []
        for reply in replies:
            ticket = reply.metadata.reply_to_message_id
            self._open.discard(ticket)
            self._replies[ticket] = reply
        self._pause = _SHORTEST if replies else min(self._pause * 1.3, _LONGEST)
        if not replies:
            time.sleep(self._pause)


def ask(
    grid: Grid,
    message_type: str,
    contents: Mapping[int, RecordDict],
    limit: float,
    check: Callable[[], None],
    ahead: int | None = None,
) -> Iterator[tuple[int, Message | None]]:
    """Send each node its message; give the answers in the nodes' order, None for one that has not come in time.

    ``check`` is called while waiting, and may raise an error if there is no point in it. ``ahead``: so many messages
    are under way at most, and the time limit of each begins when it is sent; None: all at once.
    """
    inbox, upcoming = Inbox(grid), iter(contents.items())
    sent: deque[tuple[int, str, float]] = deque()
    while True:
        more = [
            (node, inbox.push(Message(content, node, message_type, ttl=limit)))
            for node, content in islice(upcoming, None if ahead is None else ahead - len(sent))
        ]
        latest = time.monotonic() + limit  # after the last of them was sent
        sent.extend((node, ticket, latest) for node, ticket in more)
        if not sent:
            return
        node, ticket, deadline = sent.popleft()
        while (reply := inbox.take(ticket)) is None and ticket and time.monotonic() < deadline:
            check()
            inbox.wait()
        if reply is None:
            inbox.forget(ticket)
        yield node, reply


def reason(reply: Message) -> str:
    """Say in a line what error Flower reports."""
    lines = [line.strip() for line in (reply.error.reason or "").splitlines() if line.strip()]
    return f"Flower reports error {reply.error.code}: {printable(lines[-1], 300) if lines else 'no reason given'}"
