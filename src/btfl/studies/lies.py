"""Clients that lie so that it looks right: what each sends, and an engine in which some do. For studies and tests.

A lie is told in training (``Lie.update``, ``Lie.labels``) or at the end (``Lie.summary``). Liars know each other, and
for the lie that hides among the others they know everyone's updates of the round: more than a real liar can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from btfl.core.client import Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData, FederatedData
from btfl.engines import LocalEngine
from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.models.forward import extract
from btfl.randomness import generator
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.fedavg import FedAvg

Labels = NDArray[Any]
_LARGE = 1000.0


@dataclass(frozen=True)
class Lie:
    """One way to lie."""

    help: str
    update: Callable[[Weights, Sequence[Weights], Sequence[Weights]], Sequence[Weights]] | None = None
    """(weights sent, the liars' honest updates, everyone's) -> what the liars send."""
    labels: Callable[[Labels, int], Labels] | None = None
    """(labels, classes) -> those it trains on and describes."""
    summary: Callable[[FedAvg, Weights, ClientData], Summary] | None = None
    """(recipe, final weights, data) -> the sums it sends."""
    absent: bool = False
    """Whether it has no part in training and calibration: where a defence gets that leaves out the liars at once."""


def _turned(factor: float) -> Callable[[Weights, Sequence[Weights], Sequence[Weights]], Sequence[Weights]]:
    def lie(shared: Weights, own: Sequence[Weights], everyone: Sequence[Weights]) -> Sequence[Weights]:
        return [{name: shared[name] - factor * (one[name] - shared[name]) for name in one} for one in own]

    return lie


def _times_hundred(shared: Weights, own: Sequence[Weights], everyone: Sequence[Weights]) -> Sequence[Weights]:
    return [{name: np.asarray(array * 100) for name, array in one.items()} for one in own]


def _noise(shared: Weights, own: Sequence[Weights], everyone: Sequence[Weights]) -> Sequence[Weights]:
    """Return normal numbers, each liar its own, a thousand times as long as its step."""
    sent = []
    for number, one in enumerate(own):
        rng = generator(number, "noise")
        drawn = {name: rng.normal(size=array.shape) for name, array in one.items()}
        step = np.sqrt(sum(float(((one[name] - shared[name]) ** 2).sum()) for name in one))
        factor = _LARGE * step / np.sqrt(sum(float((array**2).sum()) for array in drawn.values()))
        sent.append({name: (shared[name] + factor * array).astype(np.float32) for name, array in drawn.items()})
    return sent


def _little(shared: Weights, own: Sequence[Weights], everyone: Sequence[Weights]) -> Sequence[Weights]:
    """Baruch et al. (2019): the mean of all, less so many deviations that enough honest ones are farther away."""
    count, liars = len(everyone), len(own)
    supporters = count // 2 + 1 - liars
    deviations = max(float(norm.ppf((count - liars - supporters) / max(count - liars, 1))), 0.3)
    sent = {}
    for name in shared:
        stack = np.stack([one[name] for one in everyone]).astype(np.float64)
        sent[name] = (stack.mean(axis=0) - deviations * stack.std(axis=0)).astype(np.float32)
    return [sent] * liars


def _reversed(labels: Labels, classes: int) -> Labels:
    return np.asarray(classes - 1 - labels, dtype=labels.dtype)


def _shifted(labels: Labels, classes: int) -> Labels:
    return np.asarray((labels + 1) % classes, dtype=labels.dtype)


def _large_and_reversed(recipe: FedAvg, shared: Weights, data: ClientData) -> Summary:
    features = extract(recipe.received(shared), data.train.values) * np.float32(_LARGE)
    return Summary.of(features, _reversed(data.train.labels, recipe.classes), recipe.classes)


def _one_class(recipe: FedAvg, shared: Weights, data: ClientData) -> Summary:
    features = extract(recipe.received(shared), data.train.values)
    return Summary.of(features, np.zeros_like(data.train.labels), recipe.classes)


def _blank(recipe: FedAvg, shared: Weights, data: ClientData) -> Summary:
    """Return the sums of next to nothing, which ``screen`` leaves out: without any the client would have no bundle."""
    features = extract(recipe.received(shared), data.train.values[:1])
    return Summary.of(np.zeros_like(features), [0], recipe.classes)


LIES: Mapping[str, Lie] = {
    "sign flip": Lie("its step turned round", _turned(1.0)),
    "sign flip x 10": Lie("its step turned round, and ten times as long", _turned(10.0)),
    "scaled": Lie("its weights times 100", _times_hundred),
    "noise": Lie("random numbers, 1,000 times as long as its step", _noise),
    "little": Lie("the mean less a little of the deviation, all liars the same", _little),
    "label flip": Lie("trains on reversed labels, and describes them", labels=_reversed),
    "label shift": Lie("trains on the labels of the next class, and describes them", labels=_shifted),
    "large sums": Lie("sums of features times 1,000 with reversed labels", summary=_large_and_reversed),
    "class mean": Lie("sums as if all its samples were of one class", summary=_one_class),
    "absent": Lie("sends no updates, and sums of one blank sample: what its data are worth", None, None, _blank, True),
}


def choose_liars(clients: int, share: float, seed: int) -> list[int]:
    """Return which clients lie: a share of them, drawn once."""
    count = max(round(share * clients), 1)
    return sorted(generator(seed, "liars").choice(clients, size=count, replace=False).tolist())


@dataclass(frozen=True, eq=False)
class _Poisoned(FederatedData):
    """Data in which some clients have other labels."""

    liars: frozenset[int] = frozenset()
    change: Callable[[Labels, int], Labels] = _reversed

    def of(self, client: int, round_: int) -> ClientData:
        found = super().of(client, round_)
        if client not in self.liars:
            return found
        labels = self.change(found.train.labels, len(self.source.classes))
        return replace(found, train=replace(found.train, labels=labels))


@dataclass(frozen=True)
class LyingEngine:
    """The local engine, in which some clients lie."""

    lie: Lie
    liars: Sequence[int]
    workers: int = 1

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        """Start the workers, liars among them."""
        if self.lie.labels is not None:
            data = _Poisoned(
                data.source, data.partition, data.embedded, data.backbone, frozenset(self.liars), self.lie.labels
            )
        with LocalEngine(self.workers).open(recipe, data) as session:
            yield _LyingSession(session, self, recipe, data)


@dataclass(frozen=True)
class _LyingSession:
    session: Session
    engine: LyingEngine
    recipe: Recipe
    data: FederatedData

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        """Do the jobs; liars send something else."""
        if jobs and jobs[0].task in ("train", "calibrate") and self.engine.lie.absent:
            yield from self._without_liars(broadcast, jobs)
            return
        results = self.session.run(broadcast, jobs)
        if jobs and jobs[0].task == "train" and self.engine.lie.update is not None:
            yield from self._updates(broadcast, dict(results))
        elif jobs and jobs[0].task == "describe" and self.engine.lie.summary is not None:
            yield from self._summaries(broadcast, results)
        else:
            yield from results

    def _without_liars(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        answers = self.session.run(broadcast, [job for job in jobs if job.client not in self.engine.liars])
        for job in jobs:
            yield (job, Failure("it does not answer")) if job.client in self.engine.liars else next(answers)

    def _updates(
        self, broadcast: Broadcast, found: dict[Job, Result | Failure]
    ) -> Iterator[tuple[Job, Result | Failure]]:
        good = {job: result for job, result in found.items() if isinstance(result, Update)}
        lying = [job for job in good if job.client in self.engine.liars]
        if lying:
            assert self.engine.lie.update is not None
            own = [good[job].upload for job in lying]
            sent = self.engine.lie.update(broadcast.shared, own, [one.upload for one in good.values()])
            found |= {job: replace(good[job], upload=upload) for job, upload in zip(lying, sent, strict=True)}
        yield from found.items()

    def _summaries(
        self, broadcast: Broadcast, results: Iterator[tuple[Job, Result | Failure]]
    ) -> Iterator[tuple[Job, Result | Failure]]:
        for job, result in results:
            if job.client in self.engine.liars and isinstance(result, Description):
                assert self.engine.lie.summary is not None
                assert isinstance(self.recipe, FedAvg)
                data = self.data.of(job.client, job.round)
                result = replace(result, summary=self.engine.lie.summary(self.recipe, broadcast.shared, data))
            yield job, result
