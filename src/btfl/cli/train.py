"""``btfl train``: a federation without the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from btfl.cli import completion, options, output
from btfl.cli.going_on import load_experiment, save_experiment

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.engines.federation import Initial
    from btfl.experiments.experiment import Experiment
    from btfl.runs.trained import TrainedFederation


def train(
    context: typer.Context,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help="Recipe to train, fedavg if none is given; may be repeated.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    out: options.Out = None,
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes to train with.")] = (
        options.DEFAULT_WORKERS
    ),
    device: options.Device = "cpu",
    tensorboard: options.TensorBoard = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="Begin with the weights of `zoo:NAME` or of a finished run, in place of random ones.",
            autocompletion=completion.zoo_entries,
        ),
    ] = None,
    mlflow: options.Mlflow = None,
) -> None:
    """Train a federation without the benchmark.

    `btfl bench` on the same folder then only evaluates. A run that was interrupted continues where it stopped, whatever
    stopped it: give the same command again. What happens is written to `log.jsonl` beside the weights, a line of JSON
    for each round.

    In place of an experiment, the folder of a run: it goes on until it has been trained for `--rounds` rounds in all.
    Until the new bundles are complete, the old ones stay as they are.

    Examples:

    `btfl train demo`

    `btfl train quick --recipe fedavg --recipe balanced --out runs/mine --tensorboard`

    `btfl train runs/demo --rounds 30`

    `btfl train quick --from zoo:cifar10-cnn-dir0.1-quick --out runs/another`
    """
    from btfl.benchmark.run import embed, train_recipe
    from btfl.cli.collect import collect, collect_faults
    from btfl.cli.data import get_if_missing
    from btfl.cli.progress import Watcher
    from btfl.engines import LocalEngine
    from btfl.engines.log import need_tensorboard
    from btfl.engines.mlflow_log import need_mlflow
    from btfl.errors import UnknownNameError
    from btfl.experiments.load import load_data, with_model
    from btfl.recipes.registry import RECIPES
    from btfl.runs.layout import RunFiles

    typed, run = dict(context.obj), _run_in(context.obj.get("experiment"))
    begun_with = typed.pop("start", None)
    if run is not None:
        out = _same_folder(run, out, begun_with)
        experiment, recipe = _goes_on(run, typed), recipe or list(RunFiles(run).trained())
    else:
        experiment = collect(typed)
    faults, engine = collect_faults(context.obj), LocalEngine(workers, device)
    recipes, folder = list(dict.fromkeys(recipe or ["fedavg"])), out or Path("runs") / experiment.name
    for name in recipes:
        if name not in RECIPES:
            raise UnknownNameError("recipe", name, RECIPES)
    if tensorboard:
        need_tensorboard()
    if mlflow is not None:
        need_mlflow()
    if experiment.root is None:
        get_if_missing(experiment.dataset)
    data, console = load_data(experiment), output.console(highlight=False, soft_wrap=True)
    experiment = with_model(experiment, data.source.kind)
    with Watcher(console) as watcher:
        data, _ = embed(experiment, data, workers, watcher)
    trained: list[dict[str, Any]] = []
    for name in recipes:
        with Watcher(console) as watcher:
            federation = train_recipe(
                name,
                experiment,
                data,
                engine,
                folder,
                watch=watcher,
                faults=faults,
                tensorboard=tensorboard,
                mlflow=mlflow,
                longer=run is not None,
                initial=_initial(begun_with, name),
            )
        trained.append(_came_to(name, federation, RunFiles(folder).training(name).folder))
    save_experiment(folder, experiment)
    if run is not None and RunFiles(run).record.exists():
        console.print("note: the results in this folder are those of before; `btfl bench --from` makes new ones")
    output.emit({"trained": trained}, partial(_show, trained), highlight=False, soft_wrap=True)


def _run_in(text: str | None) -> Path | None:
    """Return the folder of a run, if that is what was named in place of an experiment."""
    from btfl.runs.layout import RunFiles

    if text is None or not Path(text).is_dir():
        return None
    files = RunFiles(Path(text))
    return files.folder if files.trained() or files.record.exists() or files.experiment.exists() else None


def _same_folder(run: Path, out: Path | None, start: str | None) -> Path:
    from btfl.errors import InputError

    if start is not None:
        raise InputError(f"{run} has been begun already: --from is for another federation")
    if out is not None and out.resolve() != run.resolve():
        raise InputError(f"{run} goes on where it is: leave --out away, or begin another run with --from {run}")
    return run


def _goes_on(run: Path, typed: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a run with the number of rounds that was typed; nothing else may be changed."""
    from btfl.errors import InputError
    from btfl.experiments.experiment import Experiment, make_experiment

    experiment = load_experiment(run)
    own = {each.name for each in Experiment.knobs()}
    changed = sorted(name for name in own if typed.get(name) not in (None, (), [])) + list(typed.get("changes") or ())
    if changed:
        raise InputError(f"a run that goes on keeps its settings: leave {', '.join(changed)} away, all but --rounds")
    if typed.get("rounds") is None:
        raise InputError(f"say for how many rounds in all: btfl train {run} --rounds N")
    values = experiment.model_dump(exclude_unset=True)
    return make_experiment({**values, "training": {**experiment.training, "rounds": int(typed["rounds"])}})


def _initial(start: str | None, recipe: str) -> Initial | None:
    from btfl.engines.federation import Initial
    from btfl.errors import InputError
    from btfl.zoo.start import find_start

    if start is None:
        return None
    found = find_start(start)
    if recipe not in found.recipes:
        raise InputError(f"{start} was trained with {', '.join(found.recipes)}, not with '{recipe}'")
    return Initial(found.name, found.end_of_training(recipe)[1].shared)


def _came_to(name: str, federation: TrainedFederation, folder: Path) -> dict[str, Any]:
    """Return what training came to; clients without a bundle are an error."""
    from btfl.errors import BtflError
    from btfl.runs.checkpoint import RunFolder

    if missing := federation.missing:
        raise BtflError(
            f"{name} is trained, but clients could not finish and have no bundle: {', '.join(map(str, missing))}. "
            "What there is has been kept: start the run again to give them another chance"
        )
    metrics, rounds = RunFolder(folder).last_metrics(), federation.spec["settings"]["rounds"]
    return {"recipe": name, "rounds": rounds, **metrics, "sha256": federation.digest(), "folder": folder}


def _show(trained: list[dict[str, Any]], console: Console) -> None:
    for one in trained:
        numbers = [
            form.format(one[key])
            for key, form in (("rounds", "{} rounds"), ("loss", "loss {:.4f}"), ("accuracy", "accuracy {:.1%}"))
            if key in one
        ]
        console.print(f"{one['recipe']}: {', '.join(numbers)}", markup=False)
        console.print(f"  sha256 {one['sha256']}\n  folder {one['folder']}", markup=False)
