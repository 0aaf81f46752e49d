"""Hostile clients: what each sends, in which task, and whether a server can notice. One table for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from btfl.core.calibration import SHAPES, Calibration
from btfl.core.client import Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData, FederatedData
from btfl.engines import LocalEngine
from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.fedavg import FedAvg
from btfl.runs.trained import TrainedFederation


@dataclass(frozen=True)
class Hostile:
    """One liar."""

    task: str
    lie: Callable[[Any], Any]
    """True answer -> what it sends."""
    detectable: bool = True


def weights(change: Callable[[np.ndarray], Any]) -> Callable[[Update], Update]:
    """Change the head's weights."""
    return lambda update: replace(
        update, upload={**update.upload, "head.weight": change(np.array(update.upload["head.weight"]))}
    )


def every_weight(change: Callable[[np.ndarray], Any]) -> Callable[[Update], Update]:
    return lambda update: replace(update, upload={name: change(array) for name, array in update.upload.items()})


def metrics(**more: Any) -> Callable[[Update], Update]:
    return lambda update: replace(update, metrics={**update.metrics, **more})


def sums(**changes: Callable[[np.ndarray], Any]) -> Callable[[Description], Description]:
    def lie(description: Description) -> Description:
        arrays: dict[str, Any] = {name: array.copy() for name, array in description.summary.arrays.items()}
        for name, change in changes.items():
            arrays[name] = change(arrays[name])
        return replace(description, summary=Summary(arrays))

    return lie


def features_times(factor: float) -> Callable[[Description], Description]:
    """The sums of features so much larger, as some other data could have; which of them are on stays as it was."""

    def change(description: Description) -> Description:
        arrays = dict(description.summary.arrays)
        for name, power in {"class_feature_sums": 1, "feature_scatter": 2}.items():
            for kind in ("", "distorted_"):
                arrays[kind + name] = arrays[kind + name] * factor**power
        return replace(description, summary=Summary(arrays))

    return change


def labels_reversed(description: Description) -> Description:
    arrays = dict(description.summary.arrays)
    for name in ("class_counts", "class_feature_sums"):
        for kind in ("", "distorted_"):
            arrays[kind + name] = arrays[kind + name][::-1].copy()
    return replace(description, summary=Summary(arrays))


def with_calibration(description: Description) -> Description:
    """A calibration of its own among the sums: what looks like the total that is sent back later."""
    ones = Calibration({name: np.ones(shape) for name, shape in SHAPES.items()})
    return replace(description, summary=description.summary.calibrated(ones))


def indefinite(scatter: np.ndarray) -> np.ndarray:
    first, second = np.argsort(np.diagonal(scatter))[-2:]
    scatter[first, second] = scatter[second, first] = 2 * np.sqrt(scatter[first, first] * scatter[second, second])
    return scatter


HOSTILE: Mapping[str, Hostile] = {
    # weights
    "NaN": Hostile("train", weights(lambda array: array * np.nan)),
    "infinite": Hostile("train", weights(lambda array: array + np.float32(np.inf))),
    "1e30": Hostile("train", weights(lambda array: array + np.float32(1e30))),
    "strings": Hostile("train", weights(lambda array: array.astype(str))),
    "complex": Hostile("train", weights(lambda array: array.astype(complex))),
    "dates": Hostile("train", weights(lambda array: array.astype(np.int64).astype("datetime64[s]"))),
    "void": Hostile("train", weights(lambda array: np.zeros(array.shape, "V4"))),
    "long doubles": Hostile("train", weights(lambda array: array.astype(np.longdouble) * np.longdouble("1e4000"))),
    "other shape": Hostile("train", weights(lambda array: array.T)),
    "other byte order": Hostile("train", weights(lambda array: array.astype(">f4"))),
    "unknown array": Hostile(
        "train", lambda update: replace(update, upload={**update.upload, "more\x1b[31m": np.ones(3, np.float32)})
    ),
    "nothing": Hostile("train", lambda update: replace(update, upload={})),
    # counts and metrics
    "1e18 samples": Hostile("train", lambda update: replace(update, samples=10**18)),
    "twice its samples": Hostile("train", lambda update: replace(update, samples=2 * update.samples)),
    **{
        f"metric {name}": Hostile("train", metrics(**{name: 1.0}))
        for name in ("rounds", "round", "clients", "event", "time", "seconds")
    },
    "huge loss": Hostile("train", metrics(loss=1.7e308)),
    "long metric name": Hostile("train", metrics(**{"x" * 10_000: 1.0})),
    "1,000 metrics": Hostile("train", metrics(**{f"m{number}": 1.0 for number in range(1000)})),
    # sums
    "counts of 1e17": Hostile(
        "describe", sums(class_counts=lambda array: array * 0 + 1e17, samples=lambda _: _ + 1e18)
    ),
    "sums as strings": Hostile("describe", sums(zero_frequencies=lambda array: array.astype(str))),
    "sums as long doubles": Hostile("describe", sums(class_feature_sums=lambda array: array.astype(np.longdouble))),
    "sums in single precision": Hostile("describe", sums(class_feature_sums=lambda array: array.astype(np.float32))),
    "sums times 1,000": Hostile("describe", sums(class_feature_sums=lambda array: array[::-1] * 1000)),
    "scatter of zero": Hostile("describe", sums(feature_scatter=lambda array: array * 0)),
    "scatter not symmetric": Hostile("describe", sums(feature_scatter=lambda array: np.triu(array))),
    "scatter not semidefinite": Hostile("describe", sums(feature_scatter=indefinite)),
    "frequencies of no samples": Hostile("describe", sums(zero_frequencies=lambda array: array * 0.999 + 0.0003)),
    "speaks for many": Hostile("describe", sums(clients=lambda array: array + 9)),
    "calibration too early": Hostile("describe", with_calibration),
    "says what it likes": Hostile("describe", lambda _: Failure("\x1b[2J\r\n" * 100_000)),
    "features times ten": Hostile("describe", features_times(10.0)),
    # what looks like other data, or another training
    "update times 100": Hostile("train", every_weight(lambda array: array * 100), detectable=False),
    "update turned round": Hostile("train", every_weight(lambda array: -array), detectable=False),
    "random weights": Hostile(
        "train",
        every_weight(lambda array: np.random.default_rng(0).normal(size=array.shape).astype(np.float32)),
        detectable=False,
    ),
    "fewer samples": Hostile("train", lambda update: replace(update, samples=1), detectable=False),
    "invented accuracy": Hostile("train", metrics(accuracy=1.0), detectable=False),
    "labels flipped": Hostile("describe", labels_reversed, detectable=False),
    "features a little larger": Hostile("describe", features_times(1.02), detectable=False),
}


def _calibration(name: str, change: Callable[[np.ndarray], Any]) -> Hostile:
    return Hostile("calibrate", lambda true: Calibration({**true.arrays, name: change(np.array(true.arrays[name]))}))


def _one(place: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array.flat[place] = value
        return array

    return change


CALIBRATIONS: Mapping[str, Hostile] = {
    "a million times its samples": _calibration("calibration_samples", lambda array: array * 1e6),
    "one sample more than it was dealt": _calibration("calibration_samples", lambda array: array + 1),
    "half a sample": _calibration("calibration_samples", lambda array: array * 0 + 0.5),
    "no sample": _calibration("calibration_samples", lambda array: array * 0),
    "NaN": _calibration("calibration_global", lambda array: array * np.nan),
    "one infinite": _calibration("calibration_local", _one(7, -np.inf)),
    "likelihoods above one": _calibration("calibration_local", lambda array: array + 1e9),
    "one likelihood below the lowest": _calibration("calibration_global", _one(3, -1e9)),
    "huge moments": _calibration("calibration_moments", lambda array: array + 1e30),
    "scatter below zero": _calibration("calibration_moments", _one(1, -1.0)),
    "more weight than samples": _calibration("calibration_weights", lambda array: array + 1e6),
    "weight below zero": _calibration("calibration_weights", _one(0, -1.0)),
    "other shape": _calibration("calibration_weights", lambda array: array[:1]),
    "strings": _calibration("calibration_global", lambda array: array.astype(str)),
    "complex": _calibration("calibration_global", lambda array: array.astype(complex)),
    "dates": _calibration("calibration_samples", lambda array: array.astype(np.int64).astype("datetime64[s]")),
    "long doubles": _calibration("calibration_moments", lambda array: array.astype(np.longdouble)),
    "single precision": _calibration("calibration_local", lambda array: array.astype(np.float32)),
    "other byte order": _calibration("calibration_local", lambda array: array.astype(">f8")),
    "unknown array": Hostile("calibrate", lambda true: Calibration({**true.arrays, "more\x1b[31m": np.ones(3)})),
    "nothing": Hostile("calibrate", lambda true: Calibration({})),
    "says what it likes": Hostile("calibrate", lambda _: Failure("\x1b[2J\r\n" * 100_000)),
}
"""Calibrations that no validation part gives; every one can be noticed."""


def digests(federation: TrainedFederation) -> list[str | None]:
    """The sha256 of what each client has in the end."""
    spec, shared = federation.spec, federation.shared
    return [
        None if one is None else TrainedFederation(spec, shared, (one,), None).digest() for one in federation.outcomes
    ]


class LyingRecipe(FedAvg):
    """FedAvg with clients that lie where they work: in a worker's own process, if there are workers."""

    liars: Mapping[int, Hostile]

    def _said(self, task: str, data: ClientData, true: Any) -> Any:
        liar = self.liars.get(data.client)
        return true if liar is None or liar.task != task else liar.lie(true)

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        return self._said("train", data, super().train(round_, shared, private, data))  # type: ignore[no-any-return]

    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        return self._said("describe", data, super().describe(shared, private, data))  # type: ignore[no-any-return]

    def calibrate(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> Calibration:
        true = super().calibrate(shared, private, data, everyone)
        return self._said("calibrate", data, true)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class LyingEngine:
    """The local engine with some liars, by client; ``absent``: who would lie is away instead."""

    liars: Mapping[int, Hostile]
    workers: int = 1
    absent: bool = False

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        with LocalEngine(self.workers).open(recipe, data) as session:
            yield _LyingSession(session, self)


@dataclass(frozen=True)
class _LyingSession:
    session: Session
    engine: LyingEngine

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        for job, result in self.session.run(broadcast, jobs):
            liar = self.engine.liars.get(job.client)
            if liar is None or liar.task != job.task:
                yield job, result
            else:
                yield job, Failure("away") if self.engine.absent else liar.lie(result)
