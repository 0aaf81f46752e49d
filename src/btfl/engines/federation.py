"""A federation from the first round to every client's bundle: the same on every engine.

Clients may fail (``engines/faults.py``). In a round, whoever fails is left out of that round's average, keeps the
private state of before, and is asked again in the next round it is drawn for. At the end, a client that cannot
describe its data has no part in everyone's sum and gets no bundle, and so does one that cannot conclude; the others
get theirs. Such an incomplete federation is given back but not saved as final: starting the run again repeats the
end alone, and gives the failed another chance.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from btfl.core.client import ClientOutcome
from btfl.data.federated import FederatedData
from btfl.engines.base import Engine
from btfl.engines.door import Door
from btfl.engines.faults import FaultSettings
from btfl.engines.log import RunLog
from btfl.engines.private import PrivateRun
from btfl.engines.stage import Event, Report, Stage, participants, size_of
from btfl.recipes.base import Recipe
from btfl.runs.checkpoint import RunFolder, TrainingState
from btfl.runs.layout import TrainingFiles
from btfl.runs.trained import TrainedFederation

__all__ = ["Event", "Report", "is_finished", "participants", "run_spec", "size_of", "train_federation"]

log = logging.getLogger(__name__)


def train_federation(
    recipe: Recipe,
    data: FederatedData,
    engine: Engine,
    *,
    folder: str | Path | None = None,
    report: Report | None = None,
    faults: FaultSettings | None = None,
) -> TrainedFederation:
    """Train, describe and conclude.

    With a folder, every round is saved there: an interrupted run goes on from the last one, and a finished one is
    loaded instead of done again, or only its end is, if an older btfl left it; ``log.jsonl`` there tells what
    happened. ``faults`` says when a client has failed and how many may, before the run stops.
    """
    tell, faults = report or (lambda event: None), faults or FaultSettings()
    if folder is None:
        return _train(recipe, data, engine, None, tell, faults)
    run = RunFolder(folder)
    run.check(run_spec(recipe, data))
    if is_finished(run.folder):
        log.info("%s is finished already", recipe.name)
        run.tidy()
        return TrainedFederation.load(run.files.final.folder)
    with run.lock():
        return _train(recipe, data, engine, run, tell, faults)


def _train(
    recipe: Recipe, data: FederatedData, engine: Engine, run: RunFolder | None, tell: Report, faults: FaultSettings
) -> TrainedFederation:
    """Train, describe and conclude, in a run's folder that is locked."""
    run_log, progress = None, None
    spec, rounds = run_spec(recipe, data), recipe.rounds
    if run is not None:
        tell = run_log = RunLog(run.folder, tell)
        progress = run.load(lambda round_, warning: tell(Event("train", round_, rounds, 0, len(data), {}, warning)))
    if progress:
        log.info("%s goes on after round %d of %d", recipe.name, progress.round, rounds)
    private = None
    if recipe.settings.is_private:
        private = PrivateRun(recipe.settings, rounds, len(data), None if run is None else run.files.privacy)
    event, progress = ("resume", progress) if progress else ("start", TrainingState(0, recipe.initial()))
    with engine.open(recipe, data) as session:
        if run is not None and run_log is not None:  # not before: a wrong model or device leaves nothing behind
            run.begin(spec)
            run_log.write(event, recipe=recipe.name, round=progress.round, rounds=rounds, clients=len(data))
        stage = Stage(recipe, session, Door(recipe, data, faults), faults, tell, private)
        while progress.round < rounds:
            progress, changed = stage.one_round(len(data), progress)
            if run is not None:
                progress = run.save(progress, changed)
            else:
                progress = replace(progress, private={**progress.private, **changed})
        outcomes, total = stage.conclude(len(data), progress)
    kept = tuple(outcome if isinstance(outcome, ClientOutcome) else None for outcome in outcomes)
    federation = TrainedFederation(spec, progress.shared, kept, total)
    if run is not None and None not in outcomes:
        federation.save(run.files.final.folder)
    if run_log is not None:
        complete, digest = None not in outcomes, None if None in kept else federation.digest()
        run_log.write("end", round=progress.round, rounds=rounds, complete=complete, digest=digest)
    return federation


def is_finished(folder: str | Path) -> bool:
    """Return whether a run's folder holds its outcome, complete with every client's, as this btfl saves it."""
    return TrainedFederation.is_saved(TrainingFiles(Path(folder)).final.folder)


def run_spec(recipe: Recipe, data: FederatedData) -> dict[str, Any]:
    """Return everything that determines the outcome of a run, as plain JSON."""
    source, partition = data.source, data.partition
    told = {
        "source": source.name,
        "fingerprint": source.pool.fingerprint,
        "partition": partition.settings.as_dict(),
        "partition_seed": partition.seed,
    }
    if data.backbone is not None:
        told["backbone"] = dict(data.backbone)
    if partition.names:
        told["owners"] = source.owners_fingerprint
    if source.scaling is not None:
        told["scaling"] = source.scaling.as_dict()
    return {**recipe.spec(), "clients": len(data), "data": told}
