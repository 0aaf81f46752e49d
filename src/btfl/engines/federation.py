"""A federation from the first round to every client's bundle: the same on every engine.

Clients may fail (``engines/faults.py``). In a round, whoever fails is left out of that round's average, keeps the
private state of before, and is asked again in the next round it is drawn for. At the end, a client that cannot
describe its data has no part in everyone's sum and gets no bundle, and so does one that cannot conclude; the others
get theirs. Such an incomplete federation is given back but not saved as final: starting the run again repeats the
end alone, and gives the failed another chance.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from btfl.core.client import Weights
from btfl.core.provenance import sha256_of
from btfl.data.federated import FederatedData
from btfl.engines.base import Engine
from btfl.engines.door import Door
from btfl.engines.faults import FaultSettings
from btfl.engines.keeping import Keeping, KeptOnDisk
from btfl.engines.log import RunLog
from btfl.engines.private import PrivateRun
from btfl.engines.provenance import provenance_of, run_spec
from btfl.engines.stage import Event, Report, Stage, participants, size_of
from btfl.errors import InputError
from btfl.recipes.base import Recipe
from btfl.runs.checkpoint import RunFolder, TrainingState
from btfl.runs.layout import TrainingFiles
from btfl.runs.trained import TrainedFederation

__all__ = ["Event", "Initial", "Report", "is_finished", "participants", "size_of", "train_federation"]

log = logging.getLogger(__name__)


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
    if recipe.settings.defence == "auto" and recipe.settings.defence_in_force == "none":
        log.info("nobody sees single updates here (secure sums, or noise on them): no defence against liars")
    event = "resume" if progress else "start"
    first = None if initial is None else initial.of(recipe)
    if not progress:
        progress = TrainingState(0, recipe.initial() if first is None else first)
    with engine.open(recipe, data) as session:
        if run is not None and run_log is not None:  # not before: a wrong model or device leaves nothing behind
            run.begin(spec)
            about = {"round": progress.round, "rounds": rounds, "clients": len(data)}
            run_log.write(event, recipe=recipe.name, **about, defence=recipe.defence)
        stage = Stage(recipe, session, Door(recipe, data, faults), faults, tell, private, first)
        while progress.round < rounds:
            progress, changed = stage.one_round(len(data), progress)
            if run is not None:
                progress = run.save(progress, changed)
            else:
                progress = replace(progress, private={**progress.private, **changed})
        keep = Keeping(len(data)) if run is None else KeptOnDisk(run, rounds, len(data))
        total, complete = stage.conclude(len(data), progress, keep)
    provenance = provenance_of(recipe, data, progress.shared)
    federation = TrainedFederation(spec, progress.shared, keep.outcomes, total, provenance)
    if complete:
        keep.finish(federation)
    if run_log is not None:
        digest = None if federation.missing else federation.digest()
        run_log.write("end", round=progress.round, rounds=rounds, complete=complete, digest=digest)
    return federation


def is_finished(folder: str | Path, rounds: int | None = None) -> bool:
    """Return whether a run's folder holds its outcome, complete with every client's, as this btfl saves it.

    ``rounds``: an outcome after fewer rounds is not what is asked for.
    """
    final = TrainingFiles(Path(folder)).final.folder
    if not TrainedFederation.is_saved(final):
        return False
    return rounds is None or TrainedFederation.saved_rounds(final) >= rounds
