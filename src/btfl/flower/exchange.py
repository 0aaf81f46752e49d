"""The BTFL part alone, for a Flower app that has its own model, training and strategy.

On the client, ``add_btfl`` answers two queries after training: one for the sums that make the global likelihood, one
that leaves the client with its bundle. On the server, ``exchange`` sends them; or put ``WithBtfl`` before a strategy's
class, and its ``start`` ends with it. See ``examples/flower_existing_app``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import HeadLike, LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.engines.aggregate import RunningSum
from btfl.engines.base import Failure, Kept
from btfl.engines.faults import FaultSettings
from btfl.errors import BtflError, InputError, TooFewClientsError
from btfl.flower.inbox import ask, reason
from btfl.flower.messages import from_record, pack_result, to_record, unpack_result
from btfl.recipes.base import Description, Sums
from btfl.recipes.statistics import check_sums, describe_features, global_likelihood, global_statistics, mean_entropy

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LocalView:
    """What a client sees of its own training data under the final global model."""

    features: ArrayLike
    """Output of the extractor, (samples, dimensions), never negative: it must end in a ReLU."""
    labels: ArrayLike
    global_head: HeadLike
    """The linear layer after the extractor, as (weight, bias); the bias may be None."""
    personal_head: HeadLike
    """The client's own linear layer, trained on the same features and never uploaded."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    distorted_features: ArrayLike | None = None
    """Of one distorted copy of each sample, in the same order; coherent's evidence is better with them."""


View = Callable[[ArrayRecord, Context], LocalView]
"""(final global model, context) -> what the client sees. Asked for twice, and must give the same both times."""


def add_btfl(app: ClientApp, view: View, folder: Callable[[Context], Path]) -> None:
    """Let a client app answer the exchange; its bundle is saved in ``folder(context)``."""

    def describe(message: Message, context: Context) -> Message:
        return _reply(message, lambda: _describe(view(message.content.array_records["arrays"], context)))

    def conclude(message: Message, context: Context) -> Message:
        records = message.content.array_records

        def work() -> Kept:
            _bundle(view(records["arrays"], context), from_record(records["everyone"])).save(folder(context))
            return Kept()

        return _reply(message, work)

    app.query("btfl_describe")(describe)
    app.query("btfl_conclude")(conclude)


@dataclass(frozen=True, eq=False)
class Exchanged:
    """What the server knows after an exchange."""

    likelihood: DiscretisedLikelihood
    """The average over all clients that described their data."""
    kept: tuple[int, ...]
    """The nodes that have their bundle."""
    failed: Mapping[int, str]
    """The nodes that have none, and why."""


def exchange(
    grid: Grid, arrays: ArrayRecord, classes: int, dimensions: int, faults: FaultSettings | None = None
) -> Exchanged:
    """When training has ended: ask all nodes for their sums, send the total back, and have them make their bundles.

    A node that fails, or sends numbers that cannot be, is left out; with too few the exchange stops with an error.
    """
    faults, failed = faults or FaultSettings(), dict[int, str]()
    nodes = sorted(grid.get_node_ids())
    sums, described = RunningSum(), []
    question = RecordDict({"arrays": arrays})
    for node, reply in ask(grid, "query.btfl_describe", dict.fromkeys(nodes, question), faults.time_limit, _go_on):
        try:
            answer = _answer("describe", reply)
            assert isinstance(answer, Description)
            check_sums(answer.upload, classes, dimensions)
            sums.add(answer.upload)
            described.append(node)
        except InputError as error:
            _fail(failed, node, error)
    _enough(len(described), len(nodes), faults, failed)
    faults.check_cohort(len(described))
    everyone = sums.total()
    question = RecordDict({"arrays": arrays, "everyone": to_record(everyone)})
    kept = []
    for node, reply in ask(grid, "query.btfl_conclude", dict.fromkeys(described, question), faults.time_limit, _go_on):
        try:
            _answer("conclude", reply)
            kept.append(node)
        except InputError as error:
            _fail(failed, node, error)
    _enough(len(kept), len(nodes), faults, failed)
    return Exchanged(global_likelihood(everyone), tuple(kept), failed)


class WithBtfl(Strategy):  # type: ignore[misc,unused-ignore]  # Any where flwr is not installed
    """Put before a strategy's class, ends its run with the exchange: ``class Mine(WithBtfl, FedAvg): classes = 10``."""

    classes: int
    dimensions: int
    """Width of the features."""
    faults: FaultSettings = FaultSettings()
    exchanged: Exchanged | None = None

    def start(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """Do what the strategy does, then the exchange."""
        result = super().start(grid, *args, **options)
        self.exchanged = exchange(grid, result.arrays, self.classes, self.dimensions, self.faults)
        return result


def _describe(view: LocalView) -> Description:
    features, labels, head = as_features(view.features), np.asarray(view.labels), LinearHead.of(view.global_head)
    if labels.shape != (len(features),) or labels.dtype.kind not in "iu":
        raise InputError(f"labels must be {len(features)} whole numbers, not {labels.dtype} of shape {labels.shape}")
    if labels.size and not 0 <= labels.min() <= labels.max() < head.classes:
        raise InputError(f"labels run from {labels.min()} to {labels.max()}, but the head has {head.classes} classes")
    if (features < 0).any():
        raise InputError("features must not be negative: end the extractor in a ReLU")
    copies = None
    if view.distorted_features is not None:
        copies = as_features(view.distorted_features, width=features.shape[1]).astype(np.float32)
        if len(copies) != len(features) or (copies < 0).any():
            raise InputError(f"distorted_features must be {len(features)} rows, one a sample, and not negative")
    return Description(describe_features(features.astype(np.float32), labels.astype(np.int64), head.classes, copies))


def _bundle(view: LocalView, everyone: Sums) -> ClientBundle:
    features = as_features(view.features).astype(np.float32)
    global_head, personal_head = LinearHead.of(view.global_head), LinearHead.of(view.personal_head)
    labels = np.asarray(view.labels).astype(np.int64)
    return ClientBundle(
        global_head,
        personal_head,
        DiscretisedLikelihood.fit(features),
        global_likelihood(everyone),
        local_entropy=mean_entropy(personal_head, features),
        global_entropy=mean_entropy(global_head, features),
        statistics={
            **global_statistics(everyone),
            "local_class_counts": np.bincount(labels, minlength=global_head.classes).astype(np.float64),
            "train_features": features,
            "train_labels": labels,
        },
        metadata=view.metadata,
    )


def _reply(message: Message, work: Callable[[], Description | Kept]) -> Message:
    result: Description | Kept | Failure
    try:
        result = work()
    except BtflError as error:
        result = Failure(str(error))
    return Message(pack_result(result), reply_to=message)


def _answer(task: str, reply: Message | None) -> object:
    if reply is None:
        raise InputError("no answer in time")
    if reply.has_error():
        raise InputError(reason(reply))
    answer = unpack_result(task, reply.content)
    if isinstance(answer, Failure):
        raise InputError(answer.reason)
    return answer


def _fail(failed: dict[int, str], node: int, error: InputError) -> None:
    log.warning("node %d is left out of the exchange: %s", node, error)
    failed[node] = str(error)


def _enough(answered: int, asked: int, faults: FaultSettings, failed: Mapping[int, str]) -> None:
    if answered < faults.needed(asked):
        first = next((f"node {node}: {why}" for node, why in failed.items()), "no node is connected")
        raise TooFewClientsError(
            f"only {answered} of {asked} nodes took part in the exchange, {faults.needed(asked)} are needed. {first}"
        )


def _go_on() -> None:
    return
