"""One benchmark run, from data to results: train what the methods need, evaluate them all, save everything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from btfl.backbones.embed import Embedder, Places, Rows
from btfl.benchmark.earlier import add_record, add_rows, add_samples, find_earlier, joined
from btfl.benchmark.evaluate import Evaluation, evaluate, for_samples, needed_recipes, suitable, trained
from btfl.benchmark.kept_end import KeptEnd, can_be_kept
from btfl.benchmark.record import constants, describe_run
from btfl.benchmark.unseen import Unseen, enrollable, evaluate_unseen
from btfl.data.federated import FederatedData
from btfl.data.kept import Kept
from btfl.data.source import Source
from btfl.data.streams import Manifest, make_manifest
from btfl.engines import Event, FaultSettings, LocalEngine, train_federation
from btfl.engines.base import Engine
from btfl.engines.federation import Initial, is_finished
from btfl.engines.log import RunLog, TensorBoardReport, need_tensorboard
from btfl.engines.mlflow_log import MlflowReport, need_mlflow
from btfl.engines.pool import WorkerPool
from btfl.engines.provenance import run_spec
from btfl.errors import InputError, TooFewClientsError
from btfl.experiments.experiment import Experiment
from btfl.experiments.load import embedded, load_data, with_model
from btfl.methods.registry import find_method
from btfl.recipes.base import Recipe
from btfl.recipes.registry import make_recipe
from btfl.runs.costs import Times
from btfl.runs.layout import RunFiles
from btfl.runs.lock import locked
from btfl.runs.results import SampleTable, client_row, sample_rows, write_clients, write_table
from btfl.runs.saved import STARTED, SavedRun
from btfl.runs.start import Start, digest_note, last_state, prepare_training, write_checkpoint
from btfl.runs.trained import TrainedFederation
from btfl.storage import check_inside, sealed, write_json

log = logging.getLogger(__name__)

Watch = Callable[[str, Event], None]
"""Called with the recipe, or ``evaluation``, and what has happened."""


@dataclass(frozen=True, eq=False, repr=False)
class BenchRun:
    """A finished run."""

    experiment: Experiment
    folder: Path
    source: Source
    manifest: Manifest
    rows: pd.DataFrame
    record: Mapping[str, Any]
    """What ``run.json`` says."""
    evaluation: Evaluation
    """The trained federations and streams, for further work on them."""

    def __repr__(self) -> str:
        return f"BenchRun({self.record['run']}, {self.rows['method'].nunique()} methods, in {self.folder})"


def run_bench(
    experiment: Experiment,
    folder: str | Path,
    *,
    workers: int = 1,
    engine: Engine | None = None,
    watch: Watch | None = None,
    faults: FaultSettings | None = None,
    tensorboard: bool = False,
    mlflow: str | None = None,
    start: Start | None = None,
    overwrite: bool = False,
) -> BenchRun:
    """Do everything an experiment asks for; what is trained already in the folder is not trained again.

    Results of other methods of the same experiment stay in the folder; those of another experiment are an error.

    Parameters
    ----------
    experiment : what to train and to evaluate
    folder : where the run is saved; an interrupted one goes on from there
    workers : processes that evaluate clients, and train them if no engine is given
    engine : where clients train
    watch : called as the run goes on
    faults : when a client has failed, and how many may
    tensorboard : whether to write the metrics of training for TensorBoard
    mlflow : a folder or the address of a server, where the metrics are logged to MLflow, too
    start : where trained weights are taken from; nothing is trained then
    overwrite : whether results that are in the folder are replaced

    Example: ``run_bench(make_experiment(read_preset("demo")), "runs/demo").rows``
    """
    if tensorboard:
        need_tensorboard()
    if mlflow is not None:
        need_mlflow()
    files = RunFiles(Path(folder))
    with locked(files.folder, files.lock, files.holder):  # or two that add methods would each lose the other's
        return _run_bench(experiment, files, workers, engine, watch, faults, tensorboard, mlflow, start, overwrite)


def _run_bench(
    experiment: Experiment,
    files: RunFiles,
    workers: int,
    engine: Engine | None,
    watch: Watch | None,
    faults: FaultSettings | None,
    tensorboard: bool,
    mlflow: str | None,
    start: Start | None,
    overwrite: bool,
) -> BenchRun:
    watch = watch or (lambda recipe, event: None)
    data = load_data(experiment)
    experiment = with_model(experiment, data.source.kind)
    source, partition = data.source, data.partition
    manifest = make_manifest(source, partition, experiment.stream_settings(), experiment.stream_seed)
    seen = source.kind if experiment.backbone is None else "vectors"  # by the methods
    methods, for_others = for_samples([find_method(name) for name in experiment.methods], seen, experiment.model)
    earlier = None if overwrite else find_earlier(files.folder, experiment, manifest)
    if earlier is not None and earlier.manifest_hash != manifest.hash:
        manifest = Manifest.load(files.folder)  # of an older btfl, and what is there keeps its hash

    data, embedder = embed(experiment, data, workers, watch)
    federations: dict[str, TrainedFederation] = {}
    failed: dict[str, TooFewClientsError] = {}
    for name in needed_recipes(methods):
        try:
            federations[name] = train_recipe(
                name,
                experiment,
                data,
                engine or LocalEngine(workers),
                files.folder,
                watch=watch,
                faults=faults,
                tensorboard=tensorboard,
                mlflow=mlflow,
                start=start,
            )
        except TooFewClientsError as error:  # one training that diverges is no reason to lose all others
            failed[name] = error
            log.warning("the training of %s failed: %s", name, error)

    methods, without = trained(methods, failed)
    methods, left_out = suitable(methods, federations)
    manifest.save(files.folder)
    if partition.names:
        write_clients(files.clients, partition.names, (part.sizes for part in partition.parts))
    private = _privacy_notes(experiment, federations)
    started = _start_notes(start, federations)
    notes = (*partition.notes, *_not_used(manifest, source), *for_others, *without, *left_out, *started, *private)
    whole = experiment if earlier is None else joined(experiment, earlier)
    record = describe_run(whole, source, manifest, methods, notes)
    times = Times.of_run(files.folder) if earlier is not None else Times()
    evaluation = Evaluation(
        source,
        manifest,
        federations,
        methods,
        experiment.test_batch,
        experiment.switching,
        embedder,
        partition.held_out,
        Kept.usual(),
    )
    new_rows = None
    if partition.held_out:
        recipes = {name: _recipe(name, experiment, data) for name in federations}
        kept, why = enrollable(evaluation, recipes)
        record["notes"] = [*record["notes"], *why]
        new_rows = _unseen(Unseen(evaluation, data, kept), workers, record, watch, earlier)
    if earlier is None:
        with SampleTable(files.samples) as table:
            rows = _evaluated(evaluation, workers, record, watch, table.add, times)
    else:
        samples: list[pd.DataFrame] = []
        rows = add_rows(earlier, _evaluated(evaluation, workers, record, watch, samples.append, times), record)
        write_table(add_samples(earlier, pd.concat(samples, ignore_index=True), record), files.samples)
        record = add_record(earlier, record)
    times.write(files.folder)
    if new_rows is not None:
        write_table(new_rows, files.unseen)
    write_table(rows, files.results)
    write_json(files.record, sealed(record))  # last: a folder that has it is complete
    return BenchRun(whole, files.folder, source, manifest, rows, record, evaluation)


def embed(
    experiment: Experiment, data: FederatedData, workers: int, watch: Watch
) -> tuple[FederatedData, Embedder | None]:
    """Return data with the features of the experiment's backbone, if it has one, computed in so many processes.

    Returned with it is what turns further samples into features. ``watch`` is called as features are computed, with
    the name of the backbone.
    """

    def spread(function: Callable[[Places], Rows], items: Sequence[Places]) -> Iterator[Rows]:
        with WorkerPool[Places, Rows](workers, function) as pool:
            yield from pool.map(items)

    def progress(what: str, done: int, total: int | None) -> None:
        watch(what, Event("embed", 0, 0, done, total or done, {}))

    return embedded(experiment, data, spread, progress)


def _evaluated(
    evaluation: Evaluation,
    workers: int,
    record: Mapping[str, Any],
    watch: Watch,
    add: Callable[[pd.DataFrame], None],
    times: Times,
) -> pd.DataFrame:
    """Return the rows of all clients; ``add`` is called with the samples of each, which are not kept here.

    How long the methods took is added to ``times``.
    """
    same, of_samples = constants(record), {"run": record["run"], "seed": record["experiment"]["seed"]}
    clients, rows = evaluation.seen, list[dict[str, Any]]()
    for number, of_client in enumerate(evaluate(evaluation, workers), start=1):
        rows.extend(client_row(one, evaluation.test_batch, same) for one in of_client)
        add(sample_rows(of_client, of_samples))
        times.add(of_client)
        watch("evaluation", Event("evaluate", 0, 0, number, clients, {}))
    return pd.DataFrame(rows)


def _unseen(
    unseen: Unseen, workers: int, record: Mapping[str, Any], watch: Watch, earlier: SavedRun | None
) -> pd.DataFrame:
    """Return the rows of the clients that were held out, beside those of methods that were run before."""
    clients, rows = unseen.data.partition.held_out, list[dict[str, Any]]()
    for number, of_client in enumerate(evaluate_unseen(unseen, workers, constants(record)), start=1):
        rows.extend(of_client)
        watch("evaluation of clients held out", Event("evaluate", 0, 0, number, clients, {}))
    found = pd.DataFrame(rows)
    if earlier is None or earlier.unseen is None:
        return found
    return add_rows(replace(earlier, rows=earlier.unseen), found, record)


def _recipe(name: str, experiment: Experiment, data: FederatedData) -> Recipe:
    return make_recipe(name, experiment.training_settings(), data.sample_shape, len(data.source.classes))


def train_recipe(
    name: str,
    experiment: Experiment,
    data: FederatedData,
    engine: Engine,
    folder: Path,
    *,
    watch: Watch,
    faults: FaultSettings | None = None,
    tensorboard: bool = False,
    mlflow: str | None = None,
    start: Start | None = None,
    longer: bool = False,
    initial: Initial | None = None,
) -> TrainedFederation:
    """Train one recipe of an experiment, in a folder of its own inside the run's; resume or load it if it is there.

    Where its rounds are those of another recipe, that one is trained if necessary, and only the end is the recipe's
    own. The parameters are those of ``run_bench``, and ``longer`` and ``initial`` those of ``train_federation``.
    """
    place = RunFiles(folder).training(name).folder
    check_inside(folder, RunFiles(folder).all_trainings.name)
    recipe = _recipe(name, experiment, data)
    spec = run_spec(recipe, data)
    if recipe.rounds_of is not None and (longer or initial is not None):
        raise InputError(
            f"the rounds of '{name}' are those of '{recipe.rounds_of}': train that recipe, and then bench the method"
        )
    end = None
    if start is not None:
        prepare_training(start, spec, place, recipe.rounds_of)
        if not is_finished(place) and can_be_kept(recipe, engine):
            end = KeptEnd(place, spec, Kept.usual())
            if end.restore():
                end = None
    elif recipe.rounds_of is not None and not is_finished(place):
        train_recipe(
            recipe.rounds_of, experiment, data, engine, folder, watch=watch, faults=faults, tensorboard=tensorboard,
            mlflow=mlflow,
        )  # fmt: skip
        state = last_state(RunFiles(folder).training(recipe.rounds_of).folder)
        write_checkpoint(state, spec, place)
        RunLog(place, lambda event: None).write("taken", recipe=recipe.rounds_of, rounds=state.round)
    with ExitStack() as stack:
        also: list[Callable[[Event], None]] = []
        if tensorboard:
            also.append(stack.enter_context(TensorBoardReport(place)))
        if mlflow is not None:
            settings = {
                **spec["settings"],
                **experiment.model_dump(include={"dataset", "clients", "partition", "alpha"}),
            }
            also.append(stack.enter_context(MlflowReport(mlflow, place, experiment.name, name, settings)))

        def report(event: Event) -> None:
            watch(name, event)
            for each in also:
                each(event)

        federation = train_federation(
            recipe, data, engine, folder=place, report=report, faults=faults, longer=longer, initial=initial
        )
    if end is not None:
        end.keep()
    return federation


def _start_notes(start: Start | None, federations: Mapping[str, TrainedFederation]) -> list[str]:
    if start is None:
        return []
    found = [digest_note(start, recipe, federation) for recipe, federation in federations.items()]
    return [f"{STARTED} {start.name}.", *filter(None, found)]


def _privacy_notes(experiment: Experiment, federations: Mapping[str, TrainedFederation]) -> list[str]:
    sentence = experiment.training_settings().sentence()
    if not sentence:
        return []
    more = f" Each of {len(federations)} trainings spends as much." if len(federations) > 1 else ""
    return [sentence + more]


def _not_used(manifest: Manifest, source: Source) -> list[str]:
    if not manifest.left_out:
        return []
    return [f"{manifest.left_out} {source.kind} of the other domain are in the pool too and are not used"]
