"""What happens in a federation, step by step: a round, and the end; the same on every engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from btfl.core.calibration import Calibration
from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.engines.averaging import Averaging
from btfl.engines.base import Broadcast, Job, Kept, Session
from btfl.engines.door import MOST_METRICS, Door
from btfl.engines.faults import FaultSettings, usable
from btfl.engines.fixed import mean_of, summary_of
from btfl.engines.keeping import Keeping
from btfl.engines.noisy_sums import NoiseShare, private_mean
from btfl.engines.private import PrivateAveraging, PrivateRun, drawn
from btfl.engines.secure import SecureTotal, add_up, make_form, threshold_of
from btfl.engines.totals import Totalling
from btfl.errors import TooFewClientsError
from btfl.randomness import generator
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.settings import TrainingSettings
from btfl.runs.checkpoint import TrainingState

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


def participants(recipe: Recipe, clients: int, round_: int) -> list[int]:
    """Return the clients of a round: a share of them drawn again each round, in ascending order.

    With DP-FedAvg, each is drawn independently of the others, so that there may be more or fewer, or none.
    """
    if recipe.settings.clips_updates:
        return drawn(recipe.settings, clients, round_)
    count = max(round(recipe.settings.participation * clients), 1)
    if count == clients:
        return list(range(clients))
    chosen = generator(recipe.settings.seed, "participants", round_).choice(clients, size=count, replace=False)
    return sorted(chosen.tolist())


class Stage:
    """A session at work on a recipe, watched."""

    def __init__(
        self,
        recipe: Recipe,
        session: Session,
        door: Door,
        faults: FaultSettings,
        tell: Report,
        private: PrivateRun | None = None,
        first: Weights | None = None,
    ) -> None:
        self.recipe, self.session, self.door, self.faults, self.tell = recipe, session, door, faults, tell
        self.private, self.first = private, first

    def one_round(self, clients: int, progress: TrainingState) -> tuple[TrainingState, dict[int, Weights]]:
        """Train the clients drawn for the next round, and average what is usable.

        Given are the progress, with the private states of before, and those that have changed.
        """
        if self.recipe.settings.secure:
            return self._secure_round(clients, progress)
        started = time.monotonic()
        round_ = progress.round + 1
        chosen = participants(self.recipe, clients, round_)
        since = progress.standing.restarted
        jobs = [Job("train", client, round_, progress.private.get(client, {}), since) for client in chosen]
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
        self._tell_of_cuts(round_, averaged.cut)
        names = list(dict.fromkeys(name for row in rows for name in row))[:MOST_METRICS]
        metrics = {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}
        sent = size_of(progress.shared) * len(jobs)
        costs = {"seconds": time.monotonic() - started, "bytes_up": uploaded, "bytes_down": sent}
        self.tell(Event("train", round_, self.recipe.rounds, len(jobs), len(jobs), {**metrics, **costs}))
        history = (*progress.history, {**metrics, "round": round_, "clients": len(rows) - len(averaged.left_out)})
        weights: Weights = averaged.weights
        private = progress.private
        if averaged.restart:  # what clients keep of their own was trained on what the liars made of the rest
            weights = self.recipe.initial() if self.first is None else self.first
            private, changed = {}, {}
            warning = f"many clients led training astray until round {round_}: it begins again without them"
            log.warning(warning)
            self.tell(Event("train", round_, self.recipe.rounds, len(jobs), len(jobs), {}, warning))
        state = TrainingState(round_, weights, private, history, averaged.standing, averaged.clip)
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
        if private:
            return private
        about = {"leans": self.recipe.leans, "untrained": self.first is None}
        return Averaging(progress.shared, self._defended(), round_, progress.standing, **about)

    def _defended(self) -> TrainingSettings:
        """Return the settings with the defence that is in force for this recipe."""
        return replace(self.recipe.settings, defence=self.recipe.defence)

    def _leave_out(self, stage: str, round_: int, clients: Mapping[int, str]) -> None:
        """Tell of clients whose answers look right and are too far from all others'."""
        for client, why in clients.items():
            warning = f"client {client} is left out: {why}"
            log.warning("%s (%s, round %d)", warning, stage, round_)
            self.tell(Event(stage, round_, self.recipe.rounds, 0, 0, {}, warning, client))

    def _tell_of_cuts(self, round_: int, clients: Mapping[int, str]) -> None:
        """Tell of clients whose updates were shortened."""
        for client, why in clients.items():
            warning = f"the update of client {client} is cut to the usual size: it {why}"
            log.warning("%s (train, round %d)", warning, round_)
            self.tell(Event("train", round_, self.recipe.rounds, 0, 0, {}, warning, client))

    def conclude(self, clients: int, progress: TrainingState, keep: Keeping) -> tuple[Summary, bool]:
        """Add up every client's summary, send the total to all, and have their bundles kept as they come.

        Returned are the total, and whether every client has its bundle, here or on its own device.

        In between, recipes that ask for it have the clients look at their validation parts with the total. Who cannot
        is left out of that sum, and still gets a bundle.
        """
        rounds, shared, since = self.recipe.rounds, progress.shared, progress.standing.restarted
        jobs = [Job("describe", client, rounds, progress.private.get(client, {}), since) for client in range(clients)]
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
            Totalling(self._defended(), self.recipe.shared_head(shared), exact=self.recipe.protection is None)
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
            # validation parts have the labels of the sums that are left out
            total = self._calibrated(shared, total, [job for job in ready if job.client not in left_out])
        return total, self._bundles(clients, shared, total, ready, keep)

    def _bundles(self, clients: int, shared: Weights, total: Summary, ready: list[Job], keep: Keeping) -> bool:
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

    def __init__(self, clients: int, stage: Stage) -> None:
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
