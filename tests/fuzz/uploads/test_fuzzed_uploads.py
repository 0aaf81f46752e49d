"""Damaged uploads by the thousand, seeded: each is refused in a sentence or harmless, and no other error gets out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from btfl import ClientBundle, Coherent
from btfl.core.calibration import (
    GENERATIVE_SHARES,
    LOCAL_TEMPERATURES,
    SHAPES,
    SHRINKAGES,
    TEMPERATURES,
    Calibration,
)
from btfl.core.client import ClientOutcome
from btfl.core.generative import class_scores, shares
from btfl.core.summary import STATISTICS, Summary
from btfl.data.federated import FederatedData
from btfl.engines import FaultSettings, LocalEngine
from btfl.engines.aggregate import RunningSum
from btfl.engines.base import Broadcast, Job
from btfl.engines.door import Door
from btfl.engines.faults import usable
from btfl.recipes.base import Description, Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from small import digits

DTYPES = ("f2", "f4", "f8", ">f8", "g", "c8", "c16", "i8", "u1", "?", "U5", "S3", "M8[s]", "m8[s]", "V8", "O")
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1e-300, 1e9, 1e17, 1e18, 1e100, 1e300, 1.7e308)
NAMES = ("round", "rounds", "event", "time", "clients", "", "x" * 10_000, "\x1b[31m", "\ud800", "a/../b", "loss")
VALUES = (None, True, "1", b"1", [1.0], 10**400, -(10**400), 1 + 2j, np.longdouble("1e4000"), *NUMBERS)


class Honest(NamedTuple):
    """What an honest client has sent, and what it was sent."""

    recipe: FedAvg
    data: FederatedData
    update: Update
    description: Description
    calibration: Calibration
    bundle: ClientBundle
    """What it has in the end."""


@cache
def honest() -> Honest:
    recipe, data = FedAvg(TrainingSettings.for_model("mlp", rounds=1, local_epochs=1), (8, 8, 1), 10), digits()
    shared = Broadcast(recipe.initial())
    with LocalEngine().open(recipe, data) as session:
        [(_, update)] = session.run(shared, [Job("train", 0, 1, {})])
        [(_, description)] = session.run(shared, [Job("describe", 0, 1, {})])
        assert isinstance(update, Update)
        assert isinstance(description, Description)
        everyone = replace(shared, everyone=description.summary)
        [(_, calibration)] = session.run(everyone, [Job("calibrate", 0, 1, description.private)])
        [(_, outcome)] = session.run(everyone, [Job("conclude", 0, 1, description.private)])
    assert isinstance(calibration, Calibration)
    assert isinstance(outcome, ClientOutcome)
    return Honest(recipe, data, update, description, calibration, outcome.bundle)


def damage(rng: np.random.Generator, array: np.ndarray) -> Any:
    """One array, damaged in one way."""
    way = rng.integers(8)
    if way == 0:
        return np.zeros(array.shape, rng.choice(DTYPES))
    if way == 1:
        return np.ma.masked_array(array, array > 0)
    if way == 2:
        return [None, 3.0, "array", array.tolist(), {}][rng.integers(5)]
    if way == 3:
        return array[:-1] if rng.random() < 0.5 else array[None]
    changed = array.copy()
    with np.errstate(over="ignore"):
        value = np.asarray(rng.choice(NUMBERS)).astype(array.dtype)
    if way == 4:
        changed.flat[rng.integers(array.size)] = value
    elif way == 5:
        changed[...] = value
    elif way == 6:
        changed *= 10.0 ** rng.integers(-30, 30)
    else:
        changed = rng.permutation(changed.ravel()).reshape(array.shape)
    return changed


def damaged_update(rng: np.random.Generator, update: Any) -> Any:
    way, metrics = rng.integers(6), dict(update.metrics)
    if way == 0:
        return replace(update, samples=VALUES[rng.integers(len(VALUES))])
    if way == 1:
        return replace(update, metrics={**metrics, NAMES[rng.integers(len(NAMES))]: VALUES[rng.integers(len(VALUES))]})
    if way == 2:
        return [None, "update", Update({}, 1), replace(update, metrics=None), replace(update, upload=None)][
            rng.integers(5)
        ]
    if way == 3:
        return replace(update, upload={**update.upload, NAMES[rng.integers(len(NAMES))]: np.ones(3)})
    name = str(rng.choice(list(update.upload)))
    return replace(update, upload={**update.upload, name: damage(rng, np.asarray(update.upload[name]))})


def damaged_description(rng: np.random.Generator, description: Any) -> Any:
    arrays: dict[Any, Any] = dict(description.summary.arrays)
    if rng.random() < 0.1:
        return [None, replace(description, summary=None), Description(Summary({})), 5][rng.integers(4)]
    if rng.random() < 0.1:
        arrays[[7, None, *NAMES][rng.integers(len(NAMES) + 2)]] = np.ones(3)
    for one in rng.choice(len(STATISTICS), size=rng.integers(1, 3), replace=False):
        arrays[STATISTICS[one].name] = damage(rng, arrays[STATISTICS[one].name])
    return replace(description, summary=Summary(arrays))


def damaged_calibration(rng: np.random.Generator, calibration: Any) -> Any:
    arrays: dict[Any, Any] = dict(calibration.arrays)
    if rng.random() < 0.1:
        return [None, "calibration", Calibration({}), replace(calibration, arrays=None), 5][rng.integers(5)]
    if rng.random() < 0.1:
        arrays[[7, None, *NAMES][rng.integers(len(NAMES) + 2)]] = np.ones(3)
    for name in rng.choice(list(SHAPES), size=rng.integers(1, 3), replace=False):
        arrays[str(name)] = damage(rng, arrays[str(name)])
    return replace(calibration, arrays=arrays)


def harmless_update(one: Update) -> None:
    average, update = RunningSum(), honest().update
    average.add(one.upload, one.samples)
    average.add(update.upload, update.samples)
    assert all(np.isfinite(array).all() for array in average.mean().values())


def harmless_description(one: Description) -> None:
    total = Summary.total([one.summary, honest().description.summary])
    head = class_scores(total.class_sums(), 0.1)
    assert np.isfinite(head.weight).all()
    assert np.isfinite(shares(total.class_sums().counts)).all()
    assert np.isfinite(total.likelihood.log_odds()[1]).all()


def harmless_calibration(one: Calibration) -> None:
    """With it in everyone's sum, everyone's settings are within their ranges and predictions are probabilities."""
    bundle, total = honest().bundle, Calibration.total([one, honest().calibration])
    choice = total.choose()
    assert choice is not None
    assert choice.shrinkage in SHRINKAGES
    assert choice.temperature in TEMPERATURES
    assert choice.generative_share in GENERATIVE_SHARES
    assert choice.local_temperature in LOCAL_TEMPERATURES
    assert np.isfinite(choice.inverse_kappa)
    assert choice.inverse_kappa >= 0
    changed = replace(bundle, statistics={**bundle.statistics, **total.to_arrays()})
    rows = Coherent(changed).predict(bundle.statistics["train_features"][:5])
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)


def _note(told: list[str], job: Job, why: str) -> None:
    told.append(why)


class Answers:
    """A session that has its answers already."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Any]]:
        return zip(jobs, self.answers, strict=True)


@pytest.mark.parametrize(
    ("first", "count"), [(0, 300), pytest.param(300, 1500, marks=pytest.mark.slow)], ids=["fast", "slow"]
)
def test_a_damaged_upload_is_refused_or_harmless(first: int, count: int) -> None:
    recipe, data, *_ = honest()
    faults, outcome = FaultSettings(min_share=0.5), Counter[str]()
    door = Door(recipe, data, faults)
    kinds: dict[str, tuple[Any, Any, Any, Any]] = {
        "train": (honest().update, damaged_update, door.update, harmless_update),
        "describe": (honest().description, damaged_description, door.description, harmless_description),
        "calibrate": (honest().calibration, damaged_calibration, door.calibration, harmless_calibration),
    }
    for seed in range(first, first + count):
        rng, told = np.random.default_rng(seed), list[str]()
        task: Any = list(kinds)[rng.integers(len(kinds))]
        true, damaged, check, harmless = kinds[task]
        job = Job(task, 0, 1, {})
        session, warn = Answers(true, damaged(rng, true)), partial(_note, told)
        [_, *taken] = usable(session, Broadcast({}), [job, job], (type(true),), check, faults, warn)
        for _, one in taken:
            harmless(one)
        assert all(len(why) < 2000 and why.isprintable() for why in told)
        outcome[f"{task} {'taken' if taken else 'refused'}"] += 1
    print(f"\n{count} uploads: {dict(sorted(outcome.items()))}, 0 raw errors")
    assert outcome.total() == count
    assert sum(outcome[f"{task} refused"] for task in kinds) > 0.6 * count
