"""``btfl.bench``: the benchmark for Python and notebooks, with the same code below it as the command line's."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from btfl.benchmark.many import check_sweep, default_folder, run_sweep
from btfl.benchmark.run import Watch
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment
from btfl.experiments.gather import gather
from btfl.experiments.sweep import make_sweep
from btfl.methods.base import Method
from btfl.methods.registry import METHODS
from btfl.report.results import Results
from btfl.zoo.start import find_start

Names = str | type[Method]


def bench(
    experiment: str | Path | Mapping[str, Any] | Experiment | None = None,
    *,
    methods: Names | Sequence[Names] | None = None,
    seeds: int | Sequence[int] | None = None,
    rounds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    start: str | Path | None = None,
    reference: Names | None = None,
    columns: Sequence[str] = (),
    overwrite: bool = False,
    watch: Watch | None = None,
    **settings: Any,
) -> Results:
    """Compare methods on the streams of every client, and train what they need; as ``btfl bench`` does.

    What is trained already in the folder is not trained again, and a run that was interrupted goes on.

    Parameters
    ----------
    experiment : the name of one that comes with btfl (``"demo"``), a TOML file, or settings
    methods : names, ``"all"``, or classes of your own; None: those of the experiment
    seeds : one random seed, or several
    rounds : of training
    out : folder of the run, or of the runs' folders; None: ``runs/NAME``, for several ``runs/NAME-sweep``
    workers : processes that train and evaluate
    start : train nothing: ``"zoo:NAME"`` or the folder of a finished run
    reference : the method to compare with all others; None: BTFL
    columns : beside accuracy: ``"fairness"``, ``"calibration"``, or single ones (``btfl.report.extras``)
    overwrite : whether results of another experiment in the folder are replaced
    watch : called as the runs go on, with the recipe and what has happened
    settings : any other setting of an experiment; a number may be a list, and is run with each of its values.
        ``training={"batch": 16}`` changes that setting and leaves the others

    Returns the results: ``.frame``, ``.table()``, ``.plot()``, ``.report()``.

    >>> btfl.bench("demo", seeds=[0, 1, 2], alpha=[0.1, 1.0], methods=["fedavg", "btfl"])   # doctest: +SKIP
    """
    given = {"methods": _names(methods), "seed": seeds, "training.rounds": rounds}
    changes = {place: value for place, value in given.items() if value is not None}
    for name, value in settings.items():
        if name in ("training", "model_options", "dataset_options") and isinstance(value, Mapping):
            changes |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            changes[name] = value
    if isinstance(experiment, Experiment):
        experiment = experiment.model_dump(exclude_unset=True)
    text = None if start is None else str(start)
    found = None if text is None else find_start(text)
    under, recipes = (None, None) if found is None else (found.experiment, found.recipes)
    sweep = make_sweep(gather(experiment, changes, under, recipes))
    folder, named = Path(out) if out is not None else default_folder(sweep, text), _name(reference)
    check_sweep(sweep, folder, start=text, reference=named, columns=tuple(columns))
    folders = run_sweep(sweep, folder, workers=workers, start=found, overwrite=overwrite, watch=watch)
    return Results.load(*folders, reference=named, columns=columns, folder=folder)


def _names(methods: Names | Sequence[Names] | None) -> tuple[str, ...] | None:
    if methods is None:
        return None
    several = [methods] if isinstance(methods, str | type) else methods
    return tuple(str(_name(method)) for method in several)


def _name(method: Names | None) -> str | None:
    """Return how a method is named in an experiment: a class by its module and name."""
    if method is None or isinstance(method, str):
        return method
    if not (inspect.isclass(method) and issubclass(method, Method)):
        raise InputError(f"a method is named, or is a class that derives from btfl.Method, not {method!r}")
    if method.cards and method.cards[0].name in METHODS and METHODS[method.cards[0].name].method is method:
        return method.cards[0].name
    if "." in method.__qualname__:
        raise InputError(f"the class {method.__qualname__} is defined inside another one or a function: move it out")
    return f"{method.__module__}:{method.__qualname__}"
