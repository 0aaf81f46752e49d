"""A Flower grid without a network: the client app runs in this process, and tests may tamper with its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message, Message], Message | None]
"""(question, true answer) -> what arrives of it; None: nothing."""


class InProcessGrid(Grid):  # type: ignore[misc,unused-ignore]  # Any where flwr is not installed
    """Runs the client app at once; ``script`` says what becomes of some answers, by (message type, group, client)."""

    def __init__(self, app: ClientApp, clients: Iterable[int]) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app = app
        self.script: dict[tuple[str, str, int], Answer] = {}
        self.contexts: dict[int, Context] = {}
        self._replies: dict[str, Message | None] = {}
        for client in clients:
            self.connect(client, 100 + client)

    def connect(self, client: int, node: int) -> None:
        self.contexts[node] = Context(1, node, {"partition-id": client}, RecordDict(), {})

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        ticket = str(len(self._replies) + 1)
        message.metadata.__dict__["_message_id"] = ticket
        context = self.contexts[message.metadata.dst_node_id]
        reply: Message | None = self.app(message, context)
        key = (message.metadata.message_type, message.metadata.group_id, int(str(context.node_config["partition-id"])))
        if key in self.script and reply is not None:
            reply = self.script[key](message, reply)
        self._replies[ticket] = reply
        return ticket

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [reply for ticket in message_ids if (reply := self._replies.get(ticket)) is not None]
