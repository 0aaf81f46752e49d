"""Jobs as Flower messages: sent over the grid, waited for within a time limit, given back in order."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from btfl.data.federated import FederatedData
from btfl.engines.base import Broadcast, Failure, Job, Kept, Result, Session
from btfl.engines.faults import FaultSettings
from btfl.engines.fixed import Form, Whole
from btfl.engines.noisy_sums import NoiseShare
from btfl.engines.secure import Warn
from btfl.errors import BtflError, StorageError
from btfl.flower.client_app import run_name
from btfl.flower.inbox import Inbox, ask, reason
from btfl.flower.messages import INTRODUCE, TYPES, pack_broadcast, pack_job, unpack_result
from btfl.flower.secure import SecureSum
from btfl.recipes.base import Recipe
from btfl.runs.layout import client_name
from btfl.runs.trained import load_outcome
from btfl.storage import read_described, sealed, write_json

log = logging.getLogger(__name__)

BINDINGS = "btfl nodes"
_AHEAD = 100  # messages under way at a time: bounds what the server holds, whatever the number of clients
_PAUSE = 0.25  # seconds between two looks for clients that are not there yet
_INTRODUCTION = 60.0  # seconds a new node has to say who it is, unless the time limit is shorter
_NUMBERS = 10**12  # clients have numbers below this
_TRIES = 3  # times a node is asked that


@dataclass(frozen=True)
class GridEngine:
    """Clients on the other side of a Flower grid."""

    grid: Grid
    faults: FaultSettings = field(default_factory=FaultSettings)
    outcomes: Path | None = None
    """Where the clients' folders are, if they are on this machine; else they keep their bundles to themselves."""
    check: Callable[[], None] = lambda: None
    """Raises an error if there is no point in waiting any longer."""
    bindings: Path | None = None
    """Where it is kept which node is which client, if nodes are bound: so they stay after the server's restart."""

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        """Wait until all clients are there, or for as long as the time limit allows."""
        session = GridSession(self, run_name(recipe, data))
        clients, deadline = set(range(len(data))), time.monotonic() + self.faults.time_limit
        while missing := clients - set(session.locate(clients)):
            if time.monotonic() > deadline:
                log.warning("going on without %d of %d clients: they are not connected", len(missing), len(data))
                break
            self.check()
            time.sleep(_PAUSE)
        yield session


def read_bindings(path: Path | None) -> dict[int, int]:
    """Return which node each client is bound to, as ``nodes.json`` of a run says; empty if there is none."""
    if path is None or not path.exists():
        return {}
    nodes = read_described(path, BINDINGS, 1, ("nodes",))["nodes"]
    if (
        not isinstance(nodes, dict)
        or not all(re.fullmatch(r"\d{1,12}", client) for client in nodes)
        or not all(type(node) is int for node in nodes.values())
        or len(set(nodes.values())) < len(nodes)
    ):
        raise StorageError(f"{path} does not say, in whole numbers, which client is which node, each another one")
    return {int(client): node for client, node in nodes.items()}


class GridSession:
    """A grid at work on one run."""

    def __init__(self, engine: GridEngine, run: str) -> None:
        self._grid, self._limit, self._check = engine.grid, engine.faults.time_limit, engine.check
        self._outcomes, self._run, self._bound = engine.outcomes, run, engine.faults.bind_nodes
        self._bindings = engine.bindings if self._bound else None
        # client -> nodes that say they are it, the first one first
        self._claims = {client: [node] for client, node in read_bindings(self._bindings).items()}
        self._asked: Counter[int] = Counter()  # how often a node was asked which client it is

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        """Do the jobs on the clients' nodes; who does not answer in time has failed."""
        nodes = self.locate({job.client for job in jobs})
        records, upcoming = pack_broadcast(broadcast), iter(jobs)
        sent: deque[tuple[Job, str, float]] = deque()
        inbox = Inbox(self._grid)
        while True:
            while len(sent) < _AHEAD and (job := next(upcoming, None)) is not None:
                ticket = ""
                if job.client in nodes:
                    content = pack_job(job, self._run, records)
                    message = Message(
                        content, nodes[job.client], TYPES[job.task], ttl=self._limit, group_id=str(job.round)
                    )
                    ticket = inbox.push(message)
                sent.append((job, ticket, time.monotonic() + self._limit))
            if not sent:
                return
            job, ticket, deadline = sent[0]
            if not ticket:
                result: Result | Failure = Failure("it is not connected")
            elif (reply := inbox.take(ticket)) is not None:
                result = self._read(job, reply)
            elif time.monotonic() > deadline:
                inbox.forget(ticket)
                result = Failure(f"it has not answered within {self._limit:g} seconds")
            else:
                self._check()
                inbox.wait()
                continue
            sent.popleft()
            yield job, result

    def add_up(
        self, broadcast: Broadcast, jobs: Sequence[Job], form: Form, noise: NoiseShare | None, warn: Warn
    ) -> tuple[list[Job], Whole]:
        """Do the jobs, with masked answers; return those that are in the sum, and the sum."""
        nodes = self.locate({job.client for job in jobs})
        secure = SecureSum(self._grid, nodes, self._limit, self._check)
        return secure.run(broadcast, jobs, self._run, form, noise, warn)

    def locate(self, clients: set[int]) -> dict[int, int]:
        """Find the nodes of these clients, as far as they are connected."""
        present = set(self._grid.get_node_ids())
        nodes = self._nodes(clients, present)
        if len(nodes) < len(clients):
            self._introduce([node for node in sorted(present) if self._asked[node] < _TRIES])
            nodes = self._nodes(clients, present)
        return nodes

    def _nodes(self, clients: set[int], present: set[int]) -> dict[int, int]:
        # A second node cannot take a client's place as long as the first is connected, or never if nodes are bound.
        most = 1 if self._bound else None
        claims = {
            client: [node for node in self._claims.get(client, ())[:most] if node in present] for client in clients
        }
        return {client: nodes[0] for client, nodes in claims.items() if nodes}

    def _introduce(self, nodes: Sequence[int]) -> None:
        limit = min(self._limit, _INTRODUCTION)
        self._asked.update(nodes)
        questions = dict.fromkeys(nodes, RecordDict())
        for node, reply in ask(self._grid, INTRODUCE, questions, limit, self._check, _AHEAD):
            if reply is None:
                log.warning("node %d has not said within %g seconds which client it is", node, limit)
            elif reply.has_error():  # perhaps it had no time: it is asked again, as one that has not answered
                log.warning("node %d cannot say which client it is: %s", node, reason(reply))
            else:
                self._asked[node] = _TRIES
                self._welcome(node, reply)

    def _welcome(self, node: int, reply: Message) -> None:
        facts = reply.content.config_records.get("facts") if reply.has_content() else None
        client = None if facts is None else facts.get("client")
        if isinstance(client, int) and not isinstance(client, bool) and 0 <= client < _NUMBERS:
            claims = self._claims.get(client, [])
            if node in claims:  # as it was in an earlier part of the run, or as was written down
                return
            mine = [number for number, nodes in self._claims.items() if nodes[:1] == [node]]
            if self._bound and mine:
                log.warning("node %d says it is client %d, but is bound to client %d: refused", node, client, mine[0])
                return
            if claims:
                refused = ": it is refused for this run (bind_nodes)" if self._bound else ""
                log.warning("node %d says it is client %d, as node %d does or did%s", node, client, claims[0], refused)
            self._claims[client] = [*claims, node]
            if self._bindings is not None:
                first = {str(client): claims[0] for client, claims in sorted(self._claims.items())}
                write_json(self._bindings, sealed({"kind": BINDINGS, "version": 1, "nodes": first}))

    def _read(self, job: Job, reply: Message) -> Result | Failure:
        if reply.has_error():
            return Failure(reason(reply))
        if not reply.has_content():
            return Failure("its answer is empty")
        result = unpack_result(job.task, reply.content)
        if isinstance(result, Kept) and self._outcomes is not None:
            try:
                return load_outcome(self._outcomes / client_name(job.client))
            except BtflError as error:
                return Failure(str(error))
        return result
