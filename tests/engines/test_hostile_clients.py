"""Hostile clients in this process and over a pool: each is named and left out, and the others never notice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from btfl.core.calibration import SHAPES, Calibration
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.sources.digits import load
from btfl.engines import Event, FaultSettings, train_federation
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.trained import TrainedFederation
from hostile import HOSTILE, Hostile, LyingEngine, digests

SETTINGS = TrainingSettings.for_model("mlp", rounds=1, local_epochs=1, finetune_epochs=0, personal_epochs=1)
DETECTABLE = [name for name, liar in HOSTILE.items() if liar.detectable]
FIVE = [DETECTABLE[start::6][:5] for start in range(3)]


@cache
def data(clients: int) -> FederatedData:
    source = load(shift="none")
    return FederatedData(source, make_partition(source, PartitionSettings(clients=clients, alpha=1.0), seed=1))


def train(
    liars: dict[int, Hostile],
    folder: Path | None = None,
    workers: int = 1,
    absent: bool = False,
    clients: int = 4,
    settings: TrainingSettings = SETTINGS,
) -> tuple[TrainedFederation, list[Event]]:
    events: list[Event] = []
    engine, faults = LyingEngine(liars, workers, absent), FaultSettings(min_share=0.4)
    recipe = FedAvg(settings, (8, 8, 1), 10)
    found = train_federation(recipe, data(clients), engine, folder=folder, report=events.append, faults=faults)
    return found, events


@cache
def digests_without(tasks: tuple[tuple[int, str], ...], clients: int) -> list[str | None]:
    absent = {client: Hostile(task, lambda result: result) for client, task in tasks}
    return digests(train(absent, absent=True, clients=clients)[0])


def check(liars: dict[int, Hostile], folder: Path, workers: int, clients: int) -> None:
    federation, events = train(liars, folder, workers, clients=clients)
    tasks = tuple((client, liar.task) for client, liar in liars.items())
    assert digests(federation) == digests_without(tasks, clients)
    told = [event for event in events if event.warning]
    assert {event.client for event in told} == set(liars)
    assert all(len(event.warning) < 2000 and event.warning.isprintable() for event in told)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["event"] == "end"


def test_the_table_has_enough_rows() -> None:
    assert len(DETECTABLE) >= 22
    assert len(HOSTILE) - len(DETECTABLE) >= 5


@pytest.mark.parametrize("name", DETECTABLE)
def test_a_liar_is_as_one_who_is_away(name: str, tmp_path: Path) -> None:
    check({2: HOSTILE[name]}, tmp_path, 1, 4)


def calibration_with(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Hostile:
    return Hostile("calibrate", lambda true: Calibration({**true.arrays, name: change(np.array(true.arrays[name]))}))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "liar",
    [
        calibration_with("calibration_samples", lambda array: array * 1e6),
        calibration_with("calibration_global", lambda array: array * np.nan),
        calibration_with("calibration_local", lambda array: array + 1e9),
        calibration_with("calibration_moments", lambda array: array + 1e30),
        calibration_with("calibration_weights", lambda array: array[:1]),
        calibration_with("calibration_global", lambda array: array.astype(str)),
        Hostile("calibrate", lambda true: "no calibration"),
    ],
)
def test_a_liar_has_no_part_in_the_calibration(liar: Hostile, workers: int) -> None:
    honest, away = train({})[0], train({2: liar}, absent=True)[0]
    found, events = train({2: liar}, workers=workers)
    assert found.total is not None
    assert away.total is not None
    assert honest.total is not None
    sums = [federation.total.to_arrays() for federation in (found, away, honest) if federation.total is not None]
    assert all(np.array_equal(sums[0][name], sums[1][name]) for name in SHAPES)
    assert sums[0]["calibration_samples"] < sums[2]["calibration_samples"]
    assert {event.client for event in events if event.warning} == {2}
    assert all(outcome is not None for outcome in found.outcomes)


@pytest.mark.parametrize("names", FIVE)
@pytest.mark.parametrize("workers", [1, 2])
def test_five_liars_of_ten_are_as_five_who_are_away(names: list[str], workers: int, tmp_path: Path) -> None:
    check({2 * place: HOSTILE[name] for place, name in enumerate(names)}, tmp_path, workers, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTABLE)
def test_a_liar_is_as_one_who_is_away_in_the_pool(name: str, tmp_path: Path) -> None:
    check({2: HOSTILE[name]}, tmp_path, 2, 4)


@pytest.mark.parametrize("name", [name for name, liar in HOSTILE.items() if not liar.detectable])
def test_what_cannot_be_noticed_does_not_stop_the_server(name: str, tmp_path: Path) -> None:
    federation, events = train({2: HOSTILE[name]}, tmp_path, settings=replace(SETTINGS, defence="none"))
    assert not [event.warning for event in events if event.warning]
    assert None not in federation.outcomes


def test_samples_may_not_change_from_round_to_round(tmp_path: Path) -> None:
    shrinking = Hostile("train", lambda update: replace(update, samples=max(update.samples - next(less), 1)))
    less = iter([50, 0])
    events: list[Event] = []
    settings = TrainingSettings.for_model("mlp", rounds=2, local_epochs=1, finetune_epochs=0)
    train_federation(FedAvg(settings, (8, 8, 1), 10), data(4), LyingEngine({1: shrinking}), report=events.append)
    [warning] = [event.warning for event in events if event.warning]
    assert "announced" in warning
