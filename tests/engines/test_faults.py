"""A faulty client is named and left out; the others go on, or the run stops and can be taken up again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.core.client import Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData, FederatedData
from btfl.engines import Event, FaultSettings, LocalEngine, train_federation
from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.errors import InputError, TooFewClientsError
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.trained import TrainedFederation
from small import digits
from variants import one_in

Tamper = Callable[[Any], Any]
SETTINGS = TrainingSettings.for_model("mlp", rounds=2, local_epochs=1)


def recipe() -> Recipe:
    return FedAvg(SETTINGS, (8, 8, 1), 10)


@dataclass(frozen=True)
class ScriptedEngine:
    """The local engine, with answers of some clients replaced: (task, round, client) -> what becomes of it."""

    script: Mapping[tuple[str, int, int], Tamper] = field(default_factory=dict)

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        with LocalEngine().open(recipe, data) as session:
            yield _ScriptedSession(session, self.script)


@dataclass(frozen=True)
class _ScriptedSession:
    session: Session
    script: Mapping[tuple[str, int, int], Tamper]

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        for job, result in self.session.run(broadcast, jobs):
            tamper = self.script.get((job.task, job.round, job.client))
            yield job, result if tamper is None else tamper(result)


def train(script: Mapping[tuple[str, int, int], Tamper], **options: Any) -> tuple[TrainedFederation, list[Event]]:
    events: list[Event] = []
    federation = train_federation(recipe(), digits(), ScriptedEngine(script), report=events.append, **options)
    return federation, events


def with_weights(change: Callable[[dict[str, Any]], Any]) -> Tamper:
    def tamper(update: Update) -> Update:
        upload = {name: array.copy() for name, array in update.upload.items()}
        change(upload)
        return replace(update, upload=upload)

    return tamper


def with_sums(**changes: Any) -> Tamper:
    def tamper(description: Description) -> Description:
        sums = {name: array.copy() for name, array in description.summary.arrays.items()}
        for name, change in changes.items():
            if change is None:
                del sums[name]
            else:
                sums[name] = change(sums[name])
        return replace(description, summary=Summary(sums))

    return tamper


def put(value: float) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array.flat[0] = value
        return array

    return change


BAD_UPDATES: dict[str, tuple[Tamper, str]] = {
    "died": (lambda update: Failure("it is not connected"), "not connected"),
    "hung": (lambda update: Failure("it has not answered within 3 seconds"), "within 3 seconds"),
    "nan": (with_weights(lambda w: put(np.nan)(w["head.weight"])), "NaN"),
    "infinite": (with_weights(lambda w: put(np.inf)(w["head.weight"])), "infinite"),
    "mis-shaped": (with_weights(lambda w: w.update({"head.weight": w["head.weight"].T})), "shape"),
    "missing": (with_weights(lambda w: w.pop("head.weight")), "missing: head.weight"),
    "unknown": (with_weights(lambda w: w.update(more=np.zeros(3, np.float32))), "not asked for: more"),
    "huge": (with_weights(lambda w: put(1e30)(w["head.weight"])), "out of range"),
    "not floats": (with_weights(lambda w: w.update({"head.weight": w["head.weight"].astype(int)})), "floating"),
    "no samples": (lambda update: replace(update, samples=0), "samples"),
    "negative samples": (lambda update: replace(update, samples=-5), "samples"),
    "samples not whole": (lambda update: replace(update, samples=3.5), "samples"),
    "loss not finite": (lambda update: replace(update, metrics={"loss": float("nan")}), "stayed finite"),
    "bad head": (lambda update: replace(update, private={"h": np.array([np.nan], np.float32)}), "own h"),
}

BAD_DESCRIPTIONS: dict[str, tuple[Tamper, str]] = {
    "died": (lambda description: Failure("it is not connected"), "not connected"),
    "frequency above 1": (with_sums(zero_frequencies=put(1.5)), "zero_frequencies"),
    "frequency below 0": (with_sums(zero_frequencies=put(-0.1)), "zero_frequencies"),
    "frequency nan": (with_sums(zero_frequencies=put(np.nan)), "zero_frequencies"),
    "frequencies mis-shaped": (with_sums(zero_frequencies=lambda array: array[:-1]), "shape"),
    "frequencies missing": (with_sums(zero_frequencies=None), "missing"),
    "negative count": (with_sums(class_counts=put(-1.0)), "class_counts"),
    "counts that do not add up": (with_sums(class_counts=lambda array: array + 1), "add up"),
    "negative samples": (with_sums(samples=put(-4.0)), "samples"),
    "speaks for many": (with_sums(clients=put(100.0)), "for itself alone"),
    "copies of other samples": (with_sums(distorted_class_counts=lambda array: array + 1), "those of the samples"),
    "sums without copies": (with_sums(distorted_class_counts=lambda array: 0 * array), "where there is no sample"),
    "copies missing": (with_sums(distorted_feature_scatter=None), "missing"),
    "negative feature sum": (with_sums(class_feature_sums=put(-1.0)), "class_feature_sums"),
}


@pytest.mark.parametrize("kind", one_in(4, BAD_UPDATES))
def test_a_bad_update_is_as_if_the_client_had_not_taken_part(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    tamper, said = BAD_UPDATES[kind]
    with caplog.at_level(logging.WARNING):
        federation, events = train({("train", 1, 2): tamper})
    without, _ = train({("train", 1, 2): lambda update: Failure("away")})
    assert federation.digest() == without.digest()
    warnings = [event.warning for event in events if event.warning]
    assert len(warnings) == 1
    assert "client 2" in warnings[0]
    assert said in warnings[0]
    assert [record.message for record in caplog.records if "client 2" in record.message and "round 1" in record.message]


@pytest.mark.parametrize("kind", BAD_DESCRIPTIONS)
def test_a_bad_description_has_no_part_in_everyones_sum(kind: str) -> None:
    tamper, said = BAD_DESCRIPTIONS[kind]
    federation, events = train({("describe", 2, 1): tamper})
    [warning] = [event.warning for event in events if event.warning]
    assert "client 1" in warning
    assert said in warning
    likelihood = federation.outcome(0).bundle.global_likelihood
    assert likelihood.clients == 3
    assert (likelihood.frequencies >= 0).all()
    assert (likelihood.frequencies <= 1).all()
    with pytest.raises(InputError, match="bundle of client 1 is not here"):
        federation.client(1)


def test_every_client_is_counted_whether_it_failed_or_not() -> None:
    _, events = train({("train", 1, 0): lambda update: Failure("away")})
    assert [event.clients_done for event in events if event.round == 1 and not event.metrics][:4] == [1, 2, 3, 4]


def test_with_too_few_clients_the_run_stops_and_goes_on_later(tmp_path: Path) -> None:
    undisturbed, _ = train({})
    away: Tamper = lambda update: Failure("away")  # noqa: E731
    script = {("train", 2, client): away for client in (0, 1, 3)}
    with pytest.raises(TooFewClientsError, match=r"round 2: only 1 of 4 clients .* client 0: away.*start it again"):
        train(script, folder=tmp_path)
    federation, events = train({}, folder=tmp_path)
    assert {event.round for event in events if event.stage == "train"} == {2}
    assert federation.digest() == undisturbed.digest()


def test_how_many_are_enough_is_a_setting() -> None:
    away: Tamper = lambda update: Failure("away")  # noqa: E731
    script = {("train", 1, client): away for client in (0, 1, 3)}
    federation, _ = train(script, faults=FaultSettings(min_share=0.25))
    assert federation.outcomes.count(None) == 0
    with pytest.raises(TooFewClientsError, match="4 are needed"):
        train({("train", 1, 0): away}, faults=FaultSettings(min_share=1.0))


@pytest.mark.parametrize(
    ("share", "asked", "needed"), [(0.5, 5, 3), (0.5, 4, 2), (1.0, 7, 7), (0.1, 3, 1), (0.3, 10, 3)]
)
def test_the_share_is_of_those_asked(share: float, asked: int, needed: int) -> None:
    assert FaultSettings(min_share=share).needed(asked) == needed


def test_a_client_that_cannot_conclude_gets_another_chance(tmp_path: Path) -> None:
    undisturbed, _ = train({})
    incomplete, _ = train({("conclude", 2, 3): lambda outcome: Failure("away")}, folder=tmp_path)
    assert [outcome is None for outcome in incomplete.outcomes] == [False, False, False, True]
    complete, events = train({}, folder=tmp_path)
    assert {event.stage for event in events} == {"describe", "calibrate", "conclude"}
    assert complete.digest() == undisturbed.digest()
    again, events = train({}, folder=tmp_path)
    assert not events
    assert again.digest() == undisturbed.digest()


class Diverging(FedAvg):
    """One client's numbers are refused by btfl itself, in its own process."""

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        if data.client == 1:
            raise InputError("the loss is not finite")
        return super().train(round_, shared, private, data)


class Mistaken(FedAvg):
    """A recipe with a mistake in its program."""

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        raise ZeroDivisionError("a mistake")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_diverges_is_left_out_on_every_local_engine(workers: int) -> None:
    events: list[Event] = []
    train_federation(Diverging(SETTINGS, (8, 8, 1), 10), digits(), LocalEngine(workers), report=events.append)
    assert {event.warning for event in events} == {"", "client 1 is left out: the loss is not finite"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_in_a_program_is_not_swallowed(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        train_federation(Mistaken(SETTINGS, (8, 8, 1), 10), digits(), LocalEngine(workers))
