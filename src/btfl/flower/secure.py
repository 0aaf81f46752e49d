"""Secure sums as Flower messages: keys, shares, the job itself with a masked answer, and what unmasks the sum.

Each sum has keys of its own. A client keeps its secrets in its own state, sends one vector for a sum, and reveals
shares for one set of clients.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from btfl.core.calibration import Calibration
from btfl.core.client import Weights
from btfl.data.federated import FederatedData
from btfl.engines.base import Broadcast, Job
from btfl.engines.fixed import Form, Whole
from btfl.engines.noisy_sums import NoiseShare
from btfl.engines.secure import Warn, encode, make_form, threshold_of
from btfl.errors import InputError, TooFewClientsError
from btfl.flower import masks
from btfl.flower.inbox import ask, reason
from btfl.flower.masks import Public, Secret
from btfl.flower.messages import TYPES, from_record, pack_broadcast, pack_job, to_record
from btfl.recipes.base import Description, Recipe, Update

log = logging.getLogger(__name__)

KEYS, SHARES, REVEAL = "query.secure_keys", "query.secure_shares", "query.secure_reveal"
_RECORD, _STATE, _VECTOR = "secure", "btfl_secure", "masked"


class _AbsentError(Exception):
    """A client has not answered, or not as it should."""


class SecureSum:
    """The server's side of one sum.

    Parameters
    ----------
    grid, limit : where the clients are, and how many seconds they have for each answer
    nodes : of the clients that are connected
    check : raises an error if there is no point in waiting any longer
    """

    def __init__(self, grid: Grid, nodes: Mapping[int, int], limit: float, check: Callable[[], None]) -> None:
        self._grid, self._nodes, self._limit, self._check = grid, nodes, limit, check
        self._tag = secrets.token_hex(16)

    def run(
        self, broadcast: Broadcast, jobs: Sequence[Job], run: str, form: Form, noise: NoiseShare | None, warn: Warn
    ) -> tuple[list[Job], Whole]:
        """Do the jobs; return those whose answers are in the sum, and the sum."""
        by_client = {job.client: job for job in jobs}
        lost: dict[int, str] = {job.client: "it is not connected" for job in jobs if job.client not in self._nodes}
        threshold = threshold_of(len(jobs))
        public = self._step(KEYS, {client: {} for client in by_client if client not in lost}, _public, lost)
        self._need(public, threshold, lost)
        named = _named(public, threshold)
        sent = self._step(SHARES, dict.fromkeys(public, named), _shares, lost)
        self._need(sent, threshold, lost)
        members = {client: public[client] for client in sent}
        records, questions = pack_broadcast(broadcast), {}
        for client in members:
            received = {source: sent[source][client] for source in members}
            told = {
                **_named(members, threshold),
                "sources": list(received),
                "received": list(received.values()),
                "asked": len(jobs),
                "noise": 0.0 if noise is None else noise.multiplier,
            }
            question = pack_job(by_client[client], run, records)
            question[_RECORD] = ConfigRecord({"sum": self._tag, **told})
            questions[client] = question
        vectors = self._answers(TYPES[jobs[0].task], questions, lambda content: _vector(content, form.size), lost)
        self._need(vectors, threshold, lost)
        total = np.zeros(form.size, np.uint64)
        for vector in vectors.values():
            total = total + vector
        answered = sorted(vectors)
        revealed = self._step(REVEAL, {client: {"answered": answered} for client in answered}, _shares, dict(lost))
        shares = {member: [one[member] for one in revealed.values() if member in one] for member in members}
        total = masks.unmask(total, members, threshold, answered, shares)
        for client, why in sorted(lost.items()):
            log.warning("client %d is left out of a secure sum: %s", client, why)
            warn(by_client[client], f"client {client} is left out: {why}")
        return [by_client[client] for client in answered], total

    def _step(
        self,
        kind: str,
        questions: Mapping[int, Mapping[str, Any]],
        read: Callable[[RecordDict], Any],
        lost: dict[int, str],
    ) -> dict[int, Any]:
        packed = {
            client: RecordDict({_RECORD: ConfigRecord({"sum": self._tag, **told})})
            for client, told in questions.items()
        }
        return self._answers(kind, packed, read, lost)

    def _answers(
        self, kind: str, questions: Mapping[int, RecordDict], read: Callable[[RecordDict], Any], lost: dict[int, str]
    ) -> dict[int, Any]:
        """Return what was answered by client, in their order; who has not answered is in ``lost`` then, with why."""
        client_of = {self._nodes[client]: client for client in questions}
        contents = {self._nodes[client]: content for client, content in sorted(questions.items())}
        found = {}
        for node, reply in ask(self._grid, kind, contents, self._limit, self._check):
            try:
                found[client_of[node]] = read(_content(reply, self._limit))
            except _AbsentError as absent:
                lost[client_of[node]] = str(absent)
            except Exception as error:  # whatever a stranger's records may cause
                lost[client_of[node]] = f"its answer cannot be read: {type(error).__name__}: {error}"
        return found

    def _need(self, found: Mapping[int, Any], threshold: int, lost: Mapping[int, str]) -> None:
        if len(found) < threshold:
            quoted = "; ".join(f"client {client}: {why}" for client, why in sorted(lost.items())[:3])
            raise TooFewClientsError(
                f"only {len(found)} clients are left in a secure sum, and {threshold} are needed: nothing was learned "
                f"from it. {quoted}"
            )


def _content(reply: Message | None, limit: float) -> RecordDict:
    if reply is None:
        raise _AbsentError(f"it has not answered within {limit:g} seconds")
    if reply.has_error():
        raise _AbsentError(reason(reply))
    facts = reply.content.config_records.get("facts")
    if facts is not None and facts.get("kind") == "failure":
        raise _AbsentError(str(facts["reason"]))
    return reply.content


def _public(content: RecordDict) -> Public:
    record = content.config_records[_RECORD]
    return Public(cast("bytes", record["masks"]), cast("bytes", record["shares"]))


def _shares(content: RecordDict) -> dict[int, bytes]:
    record = content.config_records[_RECORD]
    clients, shares = cast("list[int]", record["clients"]), cast("list[bytes]", record["shares"])
    return dict(zip(clients, shares, strict=True))


def _vector(content: RecordDict, size: int) -> Whole:
    vector = from_record(content.array_records["upload"])[_VECTOR]
    if vector.dtype != np.uint64 or vector.shape != (size,):
        raise _AbsentError(f"its answer is {vector.dtype} of shape {vector.shape}, not {size} masked numbers")
    return vector


def _named(members: Mapping[int, Public], threshold: int) -> dict[str, Any]:
    order = sorted(members)
    return {
        "threshold": threshold,
        "clients": order,
        "masks": [members[client].masks for client in order],
        "shares": [members[client].shares for client in order],
    }


def _members(record: ConfigRecord) -> tuple[dict[int, Public], int]:
    columns = (cast("list[Any]", record[name]) for name in ("clients", "masks", "shares"))
    members = {int(client): Public(one, other) for client, one, other in zip(*columns, strict=True)}
    return members, int(cast("int", record["threshold"]))


# The client's side


def offer_keys(message: Message, context: Context) -> RecordDict:
    """Make the secrets of a new sum, and return the public keys."""
    secret, public = masks.make_secret()
    kept: dict[str, Any] = {"sum": _tag(message), "masks": secret.masks, "shares": secret.shares, "seed": secret.seed}
    context.state[_STATE] = ConfigRecord(kept)
    return RecordDict({_RECORD: ConfigRecord({"masks": public.masks, "shares": public.shares})})


def share_secrets(own: int, message: Message, context: Context) -> RecordDict:
    """Return a share of the secrets for every member."""
    secret, _ = _secret(message, context)
    members, threshold = _members(message.content.config_records[_RECORD])
    return _record(masks.share_secret(own, secret, members, threshold))


def masked_answer(
    own: int,
    message: Message,
    context: Context,
    result: Update | Description | Calibration,
    recipe: Recipe,
    data: FederatedData,
    shared: Weights,
    job: Job,
) -> RecordDict:
    """Return the masked answer to a job; the members and their shares are kept until the sum is unmasked."""
    secret, kept = _secret(message, context)
    if "threshold" in kept:
        raise InputError("a vector was sent for this sum before; two with the same mask would tell their difference")
    record = message.content.config_records[_RECORD]
    members, threshold = _members(record)
    asked, multiplier = int(cast("int", record["asked"])), float(cast("float", record["noise"]))
    noise = NoiseShare(multiplier, threshold_of(asked)) if multiplier else None
    if noise is None and _is_private(recipe, job.task):
        raise InputError("this client adds noise to what it sends, and the server has asked for none")
    form = make_form(recipe, data, job.task, asked, noise)
    encoded = encode(recipe, form, noise, shared, job, result)
    vector = masks.mask(own, secret, members, threshold, encoded)
    more = {name: record[name] for name in ("threshold", "clients", "sources", "received")}
    keys = {"public_masks": record["masks"], "public_shares": record["shares"]}
    context.state[_STATE] = ConfigRecord(cast("Any", {**dict(kept), **more, **keys}))
    return RecordDict({"facts": ConfigRecord({"kind": "masked"}), "upload": to_record({_VECTOR: vector})})


def reveal_shares(own: int, message: Message, context: Context) -> RecordDict:
    """Return what unmasks the sum; the secrets are forgotten with it."""
    secret, kept = _secret(message, context)
    if "threshold" not in kept:
        raise InputError("this client has sent no vector for this sum")
    columns = (cast("list[Any]", kept[name]) for name in ("clients", "public_masks", "public_shares"))
    members = {int(client): Public(one, other) for client, one, other in zip(*columns, strict=True)}
    received = dict(zip(cast("list[int]", kept["sources"]), cast("list[bytes]", kept["received"]), strict=True))
    answered = cast("list[int]", message.content.config_records[_RECORD]["answered"])
    found = masks.reveal(own, secret, members, int(cast("int", kept["threshold"])), received, answered)
    context.state[_STATE] = ConfigRecord({"sum": ""})
    return _record(found)


def _record(shares: Mapping[int, bytes]) -> RecordDict:
    columns: dict[str, Any] = {"clients": list(shares), "shares": list(shares.values())}
    return RecordDict({_RECORD: ConfigRecord(columns)})


def _is_private(recipe: Recipe, task: str) -> bool:
    return recipe.settings.clips_updates or (task != "train" and recipe.settings.is_private)


def is_masked(message: Message) -> bool:
    """Return whether a job's answer is to be masked."""
    return _RECORD in message.content.config_records


def _tag(message: Message) -> str:
    return str(message.content.config_records[_RECORD]["sum"])


def _secret(message: Message, context: Context) -> tuple[Secret, ConfigRecord]:
    kept = context.state.config_records.get(_STATE)
    if kept is None or not kept["sum"] or kept["sum"] != _tag(message):
        raise InputError("this client has no keys for that sum: it was started again, or has revealed its shares")
    names = ("masks", "shares", "seed")
    return Secret(*(cast("bytes", kept[name]) for name in names)), kept
