"""A federation from the first round to every client's bundle: the same on every engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from btfl.engines.aggregate import RunningSum
from btfl.engines.base import Broadcast, Engine, Job, Session
from btfl.engines.checkpoint import Progress, RunFolder
from btfl.engines.data import FederatedData
from btfl.engines.trained import TrainedFederation
from btfl.recipes.base import ClientOutcome, Description, Recipe, Update, Weights
from btfl.randomness import generator

Report = Callable[["Event"], None]
_FINAL = "final"  # folder of a run that holds its outcome


@dataclass(frozen=True)
class Event:
    """Something to tell whoever watches: a client or a round is done."""

    stage: str
    """``train``, ``describe`` or ``conclude``."""
    round: int
    rounds: int
    clients_done: int
    clients: int
    metrics: Mapping[str, float]
    """Means over the clients of the round; empty until the round is complete."""


def train_federation(
    recipe: Recipe,
    data: FederatedData,
    engine: Engine,
    *,
    folder: str | Path | None = None,
    report: Report | None = None,
) -> TrainedFederation:
    """Train, describe and conclude.

    With a folder, every round is saved there: an interrupted run goes on from the last one, and a finished one is
    loaded instead of done again.
    """
    tell = report or (lambda event: None)
    run = None if folder is None else RunFolder(folder)
    progress = None
    spec = {**recipe.spec(), "clients": len(data), "data": _data_spec(data)}
    if run is not None:
        run.begin(spec)
        if (run.folder / _FINAL / "federation.json").exists():
            return TrainedFederation.load(run.folder / _FINAL)
        progress = run.load()
    progress = progress or Progress(0, recipe.initial())
    with engine.open(recipe, data) as session:
        while progress.round < recipe.settings.rounds:
            progress, changed = _one_round(recipe, data, session, progress, tell)
            if run is not None:
                run.save(progress, changed)
        outcomes = _conclude(recipe, data, session, progress, tell)
    federation = TrainedFederation(spec, progress.shared, outcomes)
    if run is not None:
        federation.save(run.folder / _FINAL)
    return federation


def participants(recipe: Recipe, clients: int, round_: int) -> list[int]:
    """Give the clients of a round: a share of them drawn anew each round, in ascending order."""
    count = max(round(recipe.settings.participation * clients), 1)
    if count == clients:
        return list(range(clients))
    chosen = generator(recipe.settings.seed, "participants", round_).choice(clients, size=count, replace=False)
    return sorted(chosen.tolist())


def _one_round(
    recipe: Recipe, data: FederatedData, session: Session, progress: Progress, tell: Report
) -> tuple[Progress, dict[int, Weights]]:
    started = time.monotonic()
    round_ = progress.round + 1
    chosen = participants(recipe, len(data), round_)
    jobs = [Job("train", client, round_, progress.private.get(client, {})) for client in chosen]
    average, changed, rows = RunningSum(), {}, []
    for job, update in session.run(Broadcast(progress.shared), jobs):
        assert isinstance(update, Update)
        average.add(f"client {job.client}", update.upload, update.samples)
        rows.append(update.metrics)
        if update.private:
            changed[job.client] = update.private
        tell(Event("train", round_, recipe.settings.rounds, len(rows), len(jobs), {}))
    metrics = {name: float(np.mean([row[name] for row in rows])) for name in (rows[0] if rows else ())}
    seconds = time.monotonic() - started
    tell(Event("train", round_, recipe.settings.rounds, len(jobs), len(jobs), {**metrics, "seconds": seconds}))
    history = (*progress.history, {"round": round_, "clients": len(jobs), **metrics})
    private = {**progress.private, **changed}
    return Progress(round_, average.mean(), private, history), changed


def _conclude(
    recipe: Recipe, data: FederatedData, session: Session, progress: Progress, tell: Report
) -> tuple[ClientOutcome, ...]:
    """Add up what every client says of its data, send the sum to all, and collect their bundles."""
    rounds = recipe.settings.rounds
    sums = RunningSum()
    ready = []
    jobs = [Job("describe", client, rounds, progress.private.get(client, {})) for client in range(len(data))]
    for job, description in session.run(Broadcast(progress.shared), jobs):
        assert isinstance(description, Description)
        sums.add(f"client {job.client}", description.upload)
        ready.append(replace(job, task="conclude", private=description.private))
        tell(Event("describe", rounds, rounds, len(ready), len(jobs), {}))
    outcomes: list[ClientOutcome] = []
    for _, outcome in session.run(Broadcast(progress.shared, sums.total()), ready):
        assert isinstance(outcome, ClientOutcome)
        outcomes.append(outcome)
        tell(Event("conclude", rounds, rounds, len(outcomes), len(jobs), {}))
    return tuple(outcomes)


def _data_spec(data: FederatedData) -> dict[str, Any]:
    partition = data.partition
    return {
        "source": data.source.name,
        "fingerprint": data.source.pool.fingerprint,
        "partition": vars(partition.settings),
        "partition_seed": partition.seed,
    }
