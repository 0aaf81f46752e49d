"""Hostile clients in this process and over a pool: each is named and left out, and the others never notice."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from btfl.core.calibration import SHAPES
from btfl.core.summary import Summary
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.sources.digits import load
from btfl.engines import Event, FaultSettings, LocalEngine, train_federation
from btfl.errors import InputError, StorageError
from btfl.recipes.base import Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.trained import TrainedFederation
from hostile import CALIBRATIONS, HOSTILE, Hostile, LyingEngine, LyingRecipe, digests, every_weight
from variants import one_in

SETTINGS = TrainingSettings.for_model("mlp", rounds=1, local_epochs=1, finetune_epochs=0, personal_epochs=1)
DETECTABLE = [name for name, liar in HOSTILE.items() if liar.detectable]
FIVE = [DETECTABLE[start::6][:5] for start in range(3)]


class TwoPartsError(InputError):
    """An error whose pickle cannot be read: it is made of two parts, and has one argument."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def refuse(update: Update) -> Update:
    raise TwoPartsError("training", "it did not like to")


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


@pytest.mark.parametrize("name", one_in(4, DETECTABLE))
def test_a_liar_is_as_one_who_is_away(name: str, tmp_path: Path) -> None:
    check({2: HOSTILE[name]}, tmp_path, 1, 4)


@cache
def sums_of_calibrations(absent: bool) -> dict[str, np.ndarray]:
    """The total with or without client 2's part in the calibration."""
    away = {2: Hostile("calibrate", lambda result: result)} if absent else {}
    total = train(away, absent=True)[0].total
    assert total is not None
    return total.to_arrays()


def check_calibration(liar: Hostile, workers: int) -> None:
    found, events = train({2: liar}, workers=workers)
    assert found.total is not None
    sums, without = found.total.to_arrays(), sums_of_calibrations(absent=True)
    assert all(np.array_equal(sums[name], without[name]) for name in SHAPES)
    assert sums["calibration_samples"] < sums_of_calibrations(absent=False)["calibration_samples"]
    for outcome in found.outcomes:  # the liar's own, too
        assert outcome is not None
        assert all(np.array_equal(outcome.bundle.statistics[name], without[name]) for name in SHAPES)
    [event] = [event for event in events if event.warning]
    assert event.client == 2
    assert event.stage == "calibrate"
    assert len(event.warning) < 2000
    assert event.warning.isprintable()


@pytest.mark.parametrize("name", one_in(3, [*CALIBRATIONS, "no calibration"]))
def test_a_liar_has_no_part_in_the_calibration(name: str) -> None:
    check_calibration(CALIBRATIONS.get(name, Hostile("calibrate", lambda true: "no calibration")), 1)


@pytest.mark.parametrize("name", one_in(3, ["NaN", "strings", "a million times its samples"]))
def test_a_liar_has_no_part_in_the_calibration_in_the_pool(name: str) -> None:
    check_calibration(CALIBRATIONS[name], 2)


@pytest.mark.parametrize("names", one_in(3, FIVE))
@pytest.mark.parametrize("workers", [1, 2])
def test_five_liars_of_ten_are_as_five_who_are_away(names: list[str], workers: int, tmp_path: Path) -> None:
    check({2 * place: HOSTILE[name] for place, name in enumerate(names)}, tmp_path, workers, 10)


IN_A_WORKER = {
    **{name: HOSTILE[name] for name in ("strings", "void", "long doubles", "metric rounds", "sums as strings")},
    "a calibration": CALIBRATIONS["complex"],
    "no array": Hostile("train", lambda update: replace(update, upload=5)),
    "an error that cannot be read": Hostile("train", refuse),
}


@pytest.mark.parametrize("name", one_in(3, IN_A_WORKER))
def test_a_lie_from_a_workers_own_process_is_refused_as_any_other(name: str) -> None:
    liar, events = IN_A_WORKER[name], list[Event]()
    recipe = LyingRecipe(SETTINGS, (8, 8, 1), 10)
    recipe.liars = {2: liar}
    faults, without_2 = FaultSettings(min_share=0.4), sums_of_calibrations(absent=True)
    found = train_federation(recipe, data(4), LocalEngine(2), report=events.append, faults=faults)
    assert digests(found) == digests_without(((2, liar.task),), 4)
    if liar.task == "calibrate":
        assert found.total is not None
        assert np.array_equal(found.total.to_arrays()["calibration_global"], without_2["calibration_global"])
    assert [event.client for event in events if event.warning] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTABLE)
def test_a_liar_is_as_one_who_is_away_in_the_pool(name: str, tmp_path: Path) -> None:
    check({2: HOSTILE[name]}, tmp_path, 2, 4)


@pytest.mark.parametrize("name", [name for name, liar in HOSTILE.items() if not liar.detectable])
def test_what_cannot_be_noticed_does_not_stop_the_server(name: str, tmp_path: Path) -> None:
    federation, events = train({2: HOSTILE[name]}, tmp_path, settings=replace(SETTINGS, defence="none"))
    assert not [event.warning for event in events if event.warning]
    assert None not in federation.outcomes


def test_by_default_a_liar_is_left_out_of_a_round_and_nothing_changes_where_nobody_lies(tmp_path: Path) -> None:
    lied, events = train({2: Hostile("train", every_weight(lambda array: array * -100))})
    [told] = [event for event in events if event.warning]
    assert (told.client, told.stage) == (2, "train")
    others = (0, 1, 3)  # the liar itself keeps the personal head that it has trained
    without = digests_without(((2, "train"),), 4)
    assert [digests(lied)[client] for client in others] == [without[client] for client in others]
    honest, events = train({}, tmp_path / "honest")
    undefended, _ = train({}, settings=replace(SETTINGS, defence="none"))
    assert digests(honest) == digests(undefended)
    assert not [event for event in events if event.warning]
    assert json.loads((tmp_path / "honest" / "log.jsonl").read_text().splitlines()[0])["defence"] == "screen"


def test_an_update_that_is_only_too_long_is_cut_and_the_client_is_told_of() -> None:
    lied, events = train({2: HOSTILE["update times 100"]})
    [told] = [event for event in events if event.warning]
    assert (told.client, told.stage) == (2, "train")
    assert "is cut to the usual size" in told.warning
    honest, undefended = (
        train({})[0],
        train({2: HOSTILE["update times 100"]}, settings=replace(SETTINGS, defence="none"))[0],
    )
    longest = max(float(np.abs(array).max()) for array in honest.shared.values())
    assert max(float(np.abs(array).max()) for array in lied.shared.values()) < 2 * longest
    assert max(float(np.abs(array).max()) for array in undefended.shared.values()) > 10 * longest


def test_a_run_that_older_versions_began_without_a_defence_goes_on(tmp_path: Path) -> None:
    """They did not write the defence down, which was ``none``; so does a run that leaves it to btfl."""
    first, _ = train({}, tmp_path)
    again, _ = train({}, tmp_path, settings=replace(SETTINGS, defence="none"))
    assert digests(again) == digests(first)
    with pytest.raises(StorageError, match=r"settings\.defence"):
        train({}, tmp_path, settings=replace(SETTINGS, defence="median"))


def with_sums_nobody_asked_for(size: int) -> Hostile:
    return Hostile(
        "describe",
        lambda description: replace(
            description, summary=Summary({**description.summary.arrays, "more": np.ones(size)})
        ),
    )


@pytest.mark.parametrize(
    "liars",
    [
        {1: HOSTILE["huge loss"], 2: HOSTILE["huge loss"]},  # their mean would be infinite
        {1: with_sums_nobody_asked_for(3), 2: with_sums_nobody_asked_for(4)},  # these cannot be added up
    ],
)
def test_two_who_lie_alike_do_not_stop_the_server(liars: dict[int, Hostile], tmp_path: Path) -> None:
    check(liars, tmp_path, 1, 4)


def test_samples_may_not_change_from_round_to_round(tmp_path: Path) -> None:
    shrinking = Hostile("train", lambda update: replace(update, samples=max(update.samples - next(less), 1)))
    less = iter([50, 0])
    events: list[Event] = []
    settings = TrainingSettings.for_model("mlp", rounds=2, local_epochs=1, finetune_epochs=0)
    train_federation(FedAvg(settings, (8, 8, 1), 10), data(4), LyingEngine({1: shrinking}), report=events.append)
    [warning] = [event.warning for event in events if event.warning]
    assert "announced" in warning
