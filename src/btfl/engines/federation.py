"""A federation from the first round to every client's bundle: the same on every engine.

Clients may fail (``engines/faults.py``). In a round, whoever fails is left out of that round's average, keeps the
private state of before, and is asked again in the next round it is drawn for. At the end, a client that cannot
describe its data has no part in everyone's sum and gets no bundle, and so does one that cannot conclude; the others
get theirs. Such an incomplete federation is given back but not saved as final: starting the run again repeats the
end alone, and gives the failed another chance.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from btfl.core.calibration import Calibration
from btfl.core.client import ClientOutcome, Weights
from btfl.core.provenance import sha256_of
from btfl.core.summary import Summary
from btfl.data.federated import FederatedData
from btfl.engines.averaging import Averaging
from btfl.engines.base import Broadcast, Engine, Job, Kept, Session
from btfl.engines.door import MOST_METRICS, Door
from btfl.engines.faults import FaultSettings, usable
from btfl.engines.fixed import mean_of, summary_of
from btfl.engines.log import RunLog
from btfl.engines.noisy_sums import NoiseShare, private_mean
from btfl.engines.private import PrivateAveraging, PrivateRun, drawn
from btfl.engines.provenance import provenance_of, run_spec
from btfl.engines.secure import SecureTotal, add_up, make_form, threshold_of
from btfl.engines.totals import Totalling
from btfl.errors import InputError, TooFewClientsError
from btfl.randomness import generator
from btfl.recipes.base import Description, Recipe, Update
from btfl.runs.checkpoint import RunFolder, TrainingState
from btfl.runs.layout import TrainingFiles
from btfl.runs.trained import FederationWriter, TrainedFederation

Report = Callable[["Event"], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Something to tell whoever watches: a client or a round is done."""

    stage: str
    """``train``, ``describe``, ``calibrate`` or ``conclude``."""
    round: int
    rounds: int
    clients_done: int
    clients: int
    metrics: Mapping[str, float]
    """Means over the clients of the round; empty until the round is complete."""
    warning: str = ""
    """What went wrong, if this is about that."""
    client: int | None = None
    """Whom the warning is about, if it is about a client."""


def train_federation(
    recipe: Recipe,
    data: FederatedData,
    engine: Engine,
    *,
    folder: str | Path | None = None,
    report: Report | None = None,
    faults: FaultSettings | None = None,
    longer: bool = False,
    initial: Initial | None = None,
) -> TrainedFederation:
    """Train, describe and conclude.

    With a folder, every round is saved there: an interrupted run goes on from the last one, and a finished one is
    loaded instead of done again, or only its end is, if an older btfl left it; ``log.jsonl`` there tells what
    happened. ``faults`` says when a client has failed and how many may, before the run stops. ``longer``: the folder
    may hold the same training with fewer rounds, which then goes on; what it came to before stays until the new
    federation is complete. ``initial``: the weights of another federation, to begin with.
    """
    tell, faults = report or (lambda event: None), faults or FaultSettings()
    if folder is None:
        return _train(recipe, data, engine, None, tell, faults, initial)
    run, spec = RunFolder(folder), _spec(recipe, data, initial)
    if longer and recipe.rounds != recipe.settings.rounds:
        raise InputError(f"the recipe '{recipe.name}' ends with rounds of another kind, so that it cannot go on")
    if longer:
        run.lengthen(spec)
    run.check(spec)
    if is_finished(run.folder, recipe.settings.rounds):
        log.info("%s is finished already", recipe.name)
        run.tidy()
        return TrainedFederation.load(run.files.final.folder)
    with run.lock():
        return _train(recipe, data, engine, run, tell, faults, initial)


@dataclass(frozen=True, eq=False)
class Initial:
    """The weights of another federation that a new one begins with.

    Parameters
    ----------
    name : where they come from
    weights : of the server; those that do not fit (a head of other classes) are left as the model's own
    """

    name: str
    weights: Weights

    def of(self, recipe: Recipe) -> Weights:
        """Return what the recipe begins with: these weights where they fit, and none may be left over."""
        own = recipe.initial()
        fitting = {
            name: np.asarray(array, dtype=own[name].dtype)
            for name, array in self.weights.items()
            if name in own and np.shape(array) == own[name].shape
        }
        other = [name for name in own if name not in fitting and not name.startswith("head.")]
        if other or not fitting:
            raise InputError(
                f"the weights of {self.name} do not fit the model: {(other or list(own))[0]} is missing or of "
                "another shape. Take the model and the samples it was trained with"
            )
        return {**own, **fitting}


def _spec(recipe: Recipe, data: FederatedData, initial: Initial | None) -> dict[str, Any]:
    """Return everything that determines the outcome: where it begins, too."""
    spec = run_spec(recipe, data)
    return spec if initial is None else {**spec, "initial": sha256_of(initial.of(recipe))}


def _train(
    recipe: Recipe,
    data: FederatedData,
    engine: Engine,
    run: RunFolder | None,
    tell: Report,
    faults: FaultSettings,
    initial: Initial | None,
) -> TrainedFederation:
    """Train, describe and conclude, in a run's folder that is locked."""
    run_log, progress = None, None
    spec, rounds = _spec(recipe, data, initial), recipe.rounds
    if run is not None:
        tell = run_log = RunLog(run.folder, tell)
        progress = run.load(lambda round_, warning: tell(Event("train", round_, rounds, 0, len(data), {}, warning)))
    if progress:
        log.info("%s goes on after round %d of %d", recipe.name, progress.round, rounds)
    private = None
    if recipe.settings.is_private:
        private = PrivateRun(recipe.settings, rounds, len(data), None if run is None else run.files.privacy)
    event = "resume" if progress else "start"
    if not progress:
        progress = TrainingState(0, recipe.initial() if initial is None else initial.of(recipe))
    with engine.open(recipe, data) as session:
        if run is not None and run_log is not None:  # not before: a wrong model or device leaves nothing behind
            run.begin(spec)
            run_log.write(event, recipe=recipe.name, round=progress.round, rounds=rounds, clients=len(data))
        stage = _Stage(recipe, session, Door(recipe, data, faults), faults, tell, private)
        while progress.round < rounds:
            progress, changed = stage.one_round(len(data), progress)
            if run is not None:
                progress = run.save(progress, changed)
            else:
                progress = replace(progress, private={**progress.private, **changed})
        keep = _Kept(len(data)) if run is None else _KeptOnDisk(run, rounds, len(data))
        total, complete = stage.conclude(len(data), progress, keep)
    provenance = provenance_of(recipe, data, progress.shared)
    federation = TrainedFederation(spec, progress.shared, keep.outcomes, total, provenance)
    if complete:
        keep.finish(federation)
    if run_log is not None:
        digest = None if federation.missing else federation.digest()
        run_log.write("end", round=progress.round, rounds=rounds, complete=complete, digest=digest)
    return federation


class _Kept:
    """What clients are left with, in memory."""

    def __init__(self, clients: int) -> None:
        self._outcomes: list[ClientOutcome | None] = [None] * clients

    def add(self, client: int, outcome: ClientOutcome | None) -> None:
        """Keep what one client is left with; None: it keeps that on its own device, or has failed."""
        self._outcomes[client] = outcome

    @property
    def outcomes(self) -> Sequence[ClientOutcome | None]:
        """What all are left with."""
        return tuple(self._outcomes)

    def aside(self, job: Job, private: Weights) -> Weights:
        """Keep what a client has made of its own until it concludes."""
        return private

    def finish(self, federation: TrainedFederation) -> None:
        """Do nothing: there is no folder to complete."""


class _KeptOnDisk(_Kept):
    """The same, on disk one by one: memory does not grow with the clients."""

    def __init__(self, run: RunFolder, rounds: int, clients: int) -> None:
        self._run, self._writer = run, FederationWriter(run.files.final.folder, rounds)
        for client in range(clients):
            self._writer.add(client, None)

    def add(self, client: int, outcome: ClientOutcome | None) -> None:
        """Save what one client is left with."""
        self._writer.add(client, outcome)

    @property
    def outcomes(self) -> Sequence[ClientOutcome | None]:
        """What all are left with, read when it is asked for."""
        return self._writer.outcomes

    def finish(self, federation: TrainedFederation) -> None:
        """Make the federation count."""
        self._writer.finish(federation)
        self._run.clear_aside()

    def aside(self, job: Job, private: Weights) -> Weights:
        """Keep it on disk."""
        return self._run.put_aside(job.client, job.round, private)


def is_finished(folder: str | Path, rounds: int | None = None) -> bool:
    """Return whether a run's folder holds its outcome, complete with every client's, as this btfl saves it.

    ``rounds``: an outcome after fewer rounds is not what is asked for.
    """
    final = TrainingFiles(Path(folder)).final.folder
    if not TrainedFederation.is_saved(final):
        return False
    return rounds is None or TrainedFederation.saved_rounds(final) >= rounds


def participants(recipe: Recipe, clients: int, round_: int) -> list[int]:
    """Return the clients of a round: a share of them drawn again each round, in ascending order.

    With privacy for training, each is drawn independently of the others, so that there may be more or fewer, or none.
    """
    if recipe.settings.privacy == "full":
        return drawn(recipe.settings, clients, round_)
    count = max(round(recipe.settings.participation * clients), 1)
    if count == clients:
        return list(range(clients))
    chosen = generator(recipe.settings.seed, "participants", round_).choice(clients, size=count, replace=False)
    return sorted(chosen.tolist())


class _Stage:
    """A session at work on a recipe, watched."""

    def __init__(
        self,
        recipe: Recipe,
        session: Session,
        door: Door,
        faults: FaultSettings,
        tell: Report,
        private: PrivateRun | None = None,
    ) -> None:
        self.recipe, self.session, self.door, self.faults, self.tell = recipe, session, door, faults, tell
        self.private = private

    def one_round(self, clients: int, progress: TrainingState) -> tuple[TrainingState, dict[int, Weights]]:
        """Train the clients drawn for the next round, and average what is usable.

        Given are the progress, with the private states of before, and those that have changed.
        """
        if self.recipe.settings.secure:
            return self._secure_round(clients, progress)
        started = time.monotonic()
        round_ = progress.round + 1
        chosen = participants(self.recipe, clients, round_)
        jobs = [Job("train", client, round_, progress.private.get(client, {})) for client in chosen]
        count, uploaded = _Count(len(jobs), self), 0
        average = self._averaging(progress, round_)
        changed: dict[int, Weights] = {}
        rows: list[Mapping[str, float]] = []
        broadcast = Broadcast(progress.shared)
        for job, update in usable(self.session, broadcast, jobs, (Update,), self.door.update, self.faults, count.done):
            average.add(job.client, update)
            uploaded += size_of(update.upload)
            rows.append(update.metrics)
            if update.private:
                changed[job.client] = update.private
            count.done(job)
        averaged = average.result()
        self._leave_out("train", round_, averaged.left_out)
        names = list(dict.fromkeys(name for row in rows for name in row))[:MOST_METRICS]
        metrics = {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}
        sent = size_of(progress.shared) * len(jobs)
        costs = {"seconds": time.monotonic() - started, "bytes_up": uploaded, "bytes_down": sent}
        self.tell(Event("train", round_, self.recipe.rounds, len(jobs), len(jobs), {**metrics, **costs}))
        history = (*progress.history, {**metrics, "round": round_, "clients": len(rows) - len(averaged.left_out)})
        state = TrainingState(round_, averaged.weights, progress.private, history, averaged.standing, averaged.clip)
        return state, changed

    def _secure_round(self, clients: int, progress: TrainingState) -> tuple[TrainingState, dict[int, Weights]]:
        """Do a round of which the server learns the mean alone: no client's loss, accuracy or size."""
        started, round_ = time.monotonic(), progress.round + 1
        chosen = participants(self.recipe, clients, round_)
        jobs = [Job("train", client, round_, progress.private.get(client, {})) for client in chosen]
        multiplier = self.private and self.private.multiplier_of_round(round_)
        noise = NoiseShare(multiplier, threshold_of(len(jobs))) if multiplier else None
        found = self._add_up(Broadcast(progress.shared), jobs, self.door.update, noise)
        if self.private is not None and noise is not None:
            mean = private_mean(progress.shared, found.sums, self.private.cohort)
        else:
            mean = mean_of(found.sums)
        sent = size_of(progress.shared) * len(jobs)
        costs = {"seconds": time.monotonic() - started, "bytes_down": sent}
        self.tell(Event("train", round_, self.recipe.rounds, len(jobs), len(jobs), costs))
        history = (*progress.history, {"round": round_, "clients": len(found.members)})
        state = TrainingState(round_, mean, progress.private, history, progress.standing)
        return state, found.private

    def _add_up(
        self, broadcast: Broadcast, jobs: list[Job], check: Callable[[Job, Any], None], noise: NoiseShare | None
    ) -> SecureTotal:
        if len(jobs) < threshold_of(len(jobs)):
            raise TooFewClientsError(f"a secure sum needs at least {threshold_of(0)} clients, not {len(jobs)}")
        form = make_form(self.recipe, self.door.data, jobs[0].task, len(jobs), noise)
        count = _Count(len(jobs), self)
        return add_up(
            self.session, self.recipe, broadcast, jobs, form, noise, self.faults, check, count.done, count.done
        )

    def _averaging(self, progress: TrainingState, round_: int) -> Averaging | PrivateAveraging:
        private = self.private and self.private.averaging(progress.shared, round_, progress.clip)
        return private or Averaging(progress.shared, self.recipe.settings, round_, progress.standing)

    def _leave_out(self, stage: str, round_: int, clients: Mapping[int, str]) -> None:
        """Tell of clients whose answers look right and are too far from all others'."""
        for client, why in clients.items():
            warning = f"client {client} is left out: {why}"
            log.warning("%s (%s, round %d)", warning, stage, round_)
            self.tell(Event(stage, round_, self.recipe.rounds, 0, 0, {}, warning, client))

    def conclude(self, clients: int, progress: TrainingState, keep: _Kept) -> tuple[Summary, bool]:
        """Add up every client's summary, send the total to all, and have their bundles kept as they come.

        Returned are the total, and whether every client has its bundle, here or on its own device.

        In between, recipes that ask for it have the clients look at their validation parts with the total. Who cannot
        is left out of that sum, and still gets a bundle.
        """
        rounds, shared = self.recipe.rounds, progress.shared
        jobs = [Job("describe", client, rounds, progress.private.get(client, {})) for client in range(clients)]
        if self.recipe.settings.secure:
            multiplier = self.private and self.private.multiplier_of_summary()
            noise = NoiseShare(multiplier, threshold_of(len(jobs))) if multiplier else None
            described = self._add_up(Broadcast(shared), jobs, self.door.description, noise)
            ready = [
                replace(job, task="conclude", private=keep.aside(job, described.private.get(job.client, {})))
                for job in described.members
            ]
            total = noise.released(self.recipe, described.sums, clients) if noise else summary_of(described.sums)
            self.faults.check_cohort(len(ready))
            if self.recipe.calibrates and noise is None:
                asked = [replace(job, task="calibrate") for job in ready]
                looked = self._add_up(Broadcast(shared, total), asked, self.door.calibration, None)
                total = total.calibrated(Calibration.from_arrays(looked.sums))
            return total, self._bundles(clients, shared, total, ready, keep)
        count, ready = _Count(clients, self), list[Job]()
        totalling = (
            Totalling(self.recipe.settings, self.recipe.shared_head(shared))
            if self.private is None
            else self.private.totalling()
        )
        for job, description in usable(
            self.session, Broadcast(shared), jobs, (Description,), self.door.description, self.faults, count.done
        ):
            ready.append(replace(job, task="conclude", private=keep.aside(job, description.private)))
            count.done(job)
            totalling.add(job.client, description.summary)
        total, left_out = totalling.result()
        self._leave_out("describe", rounds, left_out)
        self.faults.check_cohort(len(ready) - len(left_out))
        if self.recipe.calibrates and self.recipe.protection is None and self.private is None:
            total = self._calibrated(shared, total, ready)
        return total, self._bundles(clients, shared, total, ready, keep)

    def _bundles(self, clients: int, shared: Weights, total: Summary, ready: list[Job], keep: _Kept) -> bool:
        """Send everyone the total, and have the bundles kept that they make of it; return whether all have theirs."""
        done = 0
        count, everyone = _Count(len(ready), self), Broadcast(shared, total)
        concluded: Iterator[tuple[Job, ClientOutcome | Kept]] = usable(
            self.session, everyone, ready, (ClientOutcome, Kept), lambda job, outcome: None, self.faults, count.done
        )
        for job, outcome in concluded:
            keep.add(job.client, outcome if isinstance(outcome, ClientOutcome) else None)
            done += 1
            count.done(job)
        return done == clients

    def _calibrated(self, shared: Weights, total: Summary, ready: list[Job]) -> Summary:
        """Return the total with the sum of what all validation parts make of it."""
        jobs = [replace(job, task="calibrate") for job in ready]
        count, sums = _Count(len(jobs), self), Calibration.total(())
        for job, calibration in usable(
            self.session, Broadcast(shared, total), jobs, (Calibration,), self.door.calibration, self.faults, count.done
        ):
            sums += calibration
            count.done(job)
        return total.calibrated(sums)


class _Count:
    """Tells whoever watches how many clients are through."""

    def __init__(self, clients: int, stage: _Stage) -> None:
        self.through, self.clients, self.stage = 0, clients, stage

    def done(self, job: Job, warning: str = "") -> None:
        """Count one more, who failed if there is a warning."""
        self.through += 1
        rounds = self.stage.recipe.rounds
        client = job.client if warning else None
        self.stage.tell(Event(job.task, job.round, rounds, self.through, self.clients, {}, warning, client))


def size_of(arrays: Mapping[str, Any]) -> int:
    """Return how many bytes arrays have, without names and framing."""
    return sum(int(array.nbytes) for array in arrays.values())
