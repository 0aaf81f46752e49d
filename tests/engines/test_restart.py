"""Training that liars have led astray begins again: with the first weights, and nothing that clients kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.sources.digits import load
from btfl.engines import Event, train_federation
from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.recipes.base import Recipe
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.checkpoint import RunFolder
from btfl.studies.lies import LIES, LyingEngine
from hostile import digests

SETTINGS = TrainingSettings.for_model("mlp", rounds=6, local_epochs=1, finetune_epochs=0, personal_epochs=1)
LIARS = [1, 3, 5, 9]


@dataclass(frozen=True)
class Watched:
    """Four of ten send their steps turned round and ten times as long; notes what each job had of its client's own."""

    had: dict[str, list[bool]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    stop_before: int = 99

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        with LyingEngine(LIES["sign flip x 10"], LIARS).open(recipe, data) as session:
            yield WatchedSession(self, session)


@dataclass(frozen=True)
class WatchedSession:
    watched: Watched
    session: Session

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        for job in jobs:
            if job.round >= self.watched.stop_before:
                raise KeyboardInterrupt
            step = f"{job.task} {job.round}"
            self.watched.had.setdefault(step, []).append(len(job.private) > 0)
            self.watched.since[step] = job.since
        return self.session.run(broadcast, jobs)


def federation() -> tuple[FedAvg, FederatedData]:
    source = load(shift="none")
    data = FederatedData(source, make_partition(source, PartitionSettings(clients=10, alpha=0.2), seed=0))
    return FedAvg(SETTINGS, (8, 8, 1), 10), data


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_clients_kept_of_the_rounds_that_are_given_up_is_forgotten(on_disk: bool, tmp_path: Path) -> None:
    events, watched = list[Event](), Watched()
    train_federation(*federation(), watched, folder=tmp_path if on_disk else None, report=events.append)
    [again] = [event.round for event in events if event.warning.startswith("many clients led training astray")]
    assert 2 <= again <= 3
    for round_ in range(1, 7):
        had = watched.had[f"train {round_}"]
        assert (not any(had)) if round_ in (1, again + 1) else all(had)
        assert watched.since[f"train {round_}"] == (again if round_ > again else 0)
    assert all(watched.had["describe 6"])
    assert watched.since["conclude 6"] == again


def test_a_run_that_was_interrupted_after_it_began_again_ends_the_same(tmp_path: Path) -> None:
    whole = train_federation(*federation(), Watched(), folder=tmp_path / "whole")
    for stop in (4, 5):
        with pytest.raises(KeyboardInterrupt):
            train_federation(*federation(), Watched(stop_before=stop), folder=tmp_path / "parts")
    state = RunFolder(tmp_path / "parts").load()
    assert state is not None
    assert state.standing.restarted in (2, 3)
    assert digests(train_federation(*federation(), Watched(), folder=tmp_path / "parts")) == digests(whole)
