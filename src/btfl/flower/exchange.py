"""The BTFL part alone, for a Flower app that has its own model, training and strategy.

On the client, ``add_btfl`` answers three queries after training: one for the sums over its data, one for what its
validation part makes of everyone's, one that leaves the client with its bundle. On the server, ``exchange`` sends them;
or put ``WithBtfl`` before a strategy's class, and its ``start`` ends with it. See ``examples/flower_existing_app``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import ArrayLike

from btfl.checks import as_features, printable
from btfl.core.bundle import ClientBundle
from btfl.core.calibration import Calibration
from btfl.core.heads import HeadLike, LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.summary import Protection, Summary
from btfl.engines.base import Failure, Kept
from btfl.engines.door import check_summary
from btfl.engines.faults import FaultSettings
from btfl.errors import BtflError, InputError, TooFewClientsError
from btfl.flower.inbox import ask, reason
from btfl.flower.messages import from_record, pack_result, to_record, unpack_result
from btfl.recipes.base import Description

log = logging.getLogger(__name__)

_NO_VALIDATION = "it has no validation part"


@dataclass(frozen=True, eq=False)
class LocalView:
    """What a client sees of its own training data under the final global model."""

    features: ArrayLike
    """Output of the extractor, (samples, dimensions), of any sign."""
    labels: ArrayLike
    global_head: HeadLike
    """The linear layer after the extractor: (weight, bias), or anything with ``.weight`` and ``.bias``."""
    personal_head: HeadLike
    """The client's own linear layer, trained on the same features and never uploaded."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    distorted_features: ArrayLike | None = None
    """Of one distorted copy of each sample, in the same order; Coherent's evidence is better with them."""
    validation: tuple[ArrayLike, ArrayLike] | None = None
    """Features and labels of samples that were not trained on: Coherent's settings are chosen by everyone's."""
    protection: Protection | None = None
    """What is done to the features before, and to the sums after they are added up: clipping, noise. With it, the
    server must be told not to expect exact sums: ``exchange(..., exact=False)``."""


View = Callable[[ArrayRecord, Context], LocalView]
"""(final global model, context) -> what the client sees. Asked for twice, and must give the same both times."""


def add_btfl(app: ClientApp, view: View, folder: Callable[[Context], Path]) -> None:
    """Let a client app answer the exchange; its bundle is saved in ``folder(context)``."""

    def describe(message: Message, context: Context) -> Message:
        return _reply(message, lambda: _describe(view(message.content.array_records["arrays"], context)))

    def calibrate(message: Message, context: Context) -> Message:
        records = message.content.array_records

        def work() -> Calibration:
            return _calibrate(view(records["arrays"], context), Summary.from_arrays(from_record(records["everyone"])))

        return _reply(message, work)

    def conclude(message: Message, context: Context) -> Message:
        records = message.content.array_records

        def work() -> Kept:
            everyone = Summary.from_arrays(from_record(records["everyone"]))
            _bundle(view(records["arrays"], context), everyone).save(folder(context))
            return Kept()

        return _reply(message, work)

    app.query("btfl_describe")(describe)
    app.query("btfl_calibrate")(calibrate)
    app.query("btfl_conclude")(conclude)


@dataclass(frozen=True, eq=False)
class Exchanged:
    """What the server knows after an exchange."""

    total: Summary
    """The total over all clients that described their data."""
    kept: tuple[int, ...]
    """The nodes that have their bundle."""
    failed: Mapping[int, str]
    """The nodes that have none, and why."""
    uncalibrated: Mapping[int, str] = field(default_factory=dict)
    """The nodes that have no part in the calibration, and why; they have their bundles nevertheless."""

    @property
    def likelihood(self) -> DiscretisedLikelihood:
        """The average over all clients that described their data."""
        return self.total.likelihood


def exchange(
    grid: Grid,
    arrays: ArrayRecord,
    classes: int,
    dimensions: int,
    faults: FaultSettings | None = None,
    *,
    exact: bool = True,
    nonnegative: bool = False,
) -> Exchanged:
    """When training has ended: ask all nodes for their sums, send the total back, and have them make their bundles.

    A node that fails, or sends numbers that cannot be, is left out; with too few the exchange stops with an error.
    ``exact=False``: the clients add noise (``LocalView.protection``), so only shapes and finite values are asked for.
    ``nonnegative=True``: the extractor ends in a ReLU, so sums below zero are refused as well.
    """
    faults, failed = faults or FaultSettings(), dict[int, str]()
    nodes = sorted(grid.get_node_ids())
    described: list[int] = []
    question = RecordDict({"arrays": arrays})
    check = partial(Summary.check, classes=classes, dimensions=dimensions, exact=exact, nonnegative=nonnegative)

    def summaries() -> Iterator[Summary]:
        asked = dict.fromkeys(nodes, question)
        for node, reply in ask(grid, "query.btfl_describe", asked, faults.time_limit, _go_on):
            try:
                answer = _answer("describe", reply)
                assert isinstance(answer, Description)
                check_summary(answer.summary, check, faults)
            except InputError as error:
                _fail(failed, node, error)
                continue
            described.append(node)
            yield answer.summary
        _enough(len(described), len(nodes), faults, failed)

    everyone = Summary.total(summaries())
    faults.check_cohort(len(described))
    uncalibrated: dict[int, str] = {}
    if exact:
        everyone = _calibrated(grid, arrays, everyone, described, faults, uncalibrated)
    answer_to_all = RecordDict({"arrays": arrays, "everyone": to_record(everyone.to_arrays())})
    kept = []
    for node, reply in ask(
        grid, "query.btfl_conclude", dict.fromkeys(described, answer_to_all), faults.time_limit, _go_on
    ):
        try:
            _answer("conclude", reply)
            kept.append(node)
        except InputError as error:
            _fail(failed, node, error)
    _enough(len(kept), len(nodes), faults, failed)
    return Exchanged(everyone, tuple(kept), failed, uncalibrated)


def _calibrated(
    grid: Grid,
    arrays: ArrayRecord,
    everyone: Summary,
    nodes: list[int],
    faults: FaultSettings,
    left_out: dict[int, str],
) -> Summary:
    """Return the total with what the validation parts make of it; who has no part in that is noted in ``left_out``."""
    question = RecordDict({"arrays": arrays, "everyone": to_record(everyone.to_arrays())})
    fits = Calibration.total(())
    for node, reply in ask(grid, "query.btfl_calibrate", dict.fromkeys(nodes, question), faults.time_limit, _go_on):
        try:
            answer = _answer("calibrate", reply)
            assert isinstance(answer, Calibration)
            answer.check(faults.most_samples)
        except InputError as error:
            left_out[node] = printable(error)
            # to have no validation part is nothing to warn of; to send what no such part could give is
            level = logging.INFO if left_out[node] == _NO_VALIDATION else logging.WARNING
            log.log(level, "node %d has no part in the calibration: %s", node, left_out[node])
            continue
        fits += answer
    return everyone.calibrated(fits) if fits.samples else everyone


class WithBtfl(Strategy):  # type: ignore[misc,unused-ignore]  # Any where flwr is not installed
    """Put before a strategy's class, ends its run with the exchange: ``class Mine(WithBtfl, FedAvg): classes = 10``."""

    classes: int
    dimensions: int
    """Width of the features."""
    faults: FaultSettings = FaultSettings()
    exact: bool = True
    """Off where clients add noise to what they upload (``LocalView.protection``)."""
    nonnegative: bool = False
    """On where the extractor ends in a ReLU: sums below zero are then refused."""
    exchanged: Exchanged | None = None

    def start(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """Do what the strategy does, then the exchange."""
        result = super().start(grid, *args, **options)
        sizes = self.classes, self.dimensions
        self.exchanged = exchange(
            grid, result.arrays, *sizes, self.faults, exact=self.exact, nonnegative=self.nonnegative
        )
        return result


def _describe(view: LocalView) -> Description:
    return Description(_summary(view, view.protection))


def _summary(view: LocalView, protection: Protection | None = None) -> Summary:
    classes = LinearHead.of(view.global_head).classes
    copies = _single(view.distorted_features)
    return Summary.of(_single(view.features), view.labels, classes, distorted=copies, protection=protection)


def _calibrate(view: LocalView, everyone: Summary) -> Calibration:
    if view.validation is None:
        raise InputError(_NO_VALIDATION)
    features, labels = view.validation
    heads = view.global_head, view.personal_head
    return Calibration.of(*heads, _summary(view), everyone, _single(features), labels)


def _single(features: ArrayLike | None) -> Any:
    """Return features in single precision, which is what a bundle keeps of them."""
    return None if features is None else as_features(features).astype(np.float32)


def _bundle(view: LocalView, everyone: Summary) -> ClientBundle:
    heads = view.global_head, view.personal_head
    features, metadata = _single(view.features), view.metadata
    return ClientBundle.of(
        *heads,
        _summary(view),
        everyone,
        features=features,
        labels=view.labels,
        validation=None if view.validation is None else (_single(view.validation[0]), view.validation[1]),
        metadata=metadata,
    )


def _reply(message: Message, work: Callable[[], Description | Calibration | Kept]) -> Message:
    result: Description | Calibration | Kept | Failure
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
    if not reply.has_content():
        raise InputError("its answer is empty")
    answer = unpack_result(task, reply.content)
    if isinstance(answer, Failure):
        raise InputError(answer.reason)
    return answer


def _fail(failed: dict[int, str], node: int, error: InputError) -> None:
    failed[node] = printable(error)
    log.warning("node %d is left out of the exchange: %s", node, failed[node])


def _enough(answered: int, asked: int, faults: FaultSettings, failed: Mapping[int, str]) -> None:
    if answered < faults.needed(asked):
        first = next((f"node {node}: {why}" for node, why in failed.items()), "no node is connected")
        raise TooFewClientsError(
            f"only {answered} of {asked} nodes took part in the exchange, {faults.needed(asked)} are needed. {first}"
        )


def _go_on() -> None:
    return
