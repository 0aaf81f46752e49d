"""Options that several commands share, and options made from knobs: the same name and meaning everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperArgument, TyperOption

from btfl.cli import completion
from btfl.cli.completion import Complete, completing
from btfl.cli.several import SeveralFloats, SeveralInts
from btfl.knobs import Knob

DEFAULT_WORKERS = min(os.cpu_count() or 1, 8)

Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where the run is kept.")]
Workers = Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes to train and evaluate with.")]
Device = Annotated[
    str,
    typer.Option(
        help="Train on cpu, cuda, or auto (a GPU if there is one). Only cpu repeats to the byte.",
        autocompletion=completing(lambda: ("cpu", "cuda", "auto")),
    ),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write each round's metrics for TensorBoard.")]
Mlflow = Annotated[
    str | None,
    typer.Option("--mlflow", metavar="PLACE", help="Also log each round to MLflow: a folder, or a server's address."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the results in the folder, if they are of another experiment.")
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="Compare this method with all others, pair by pair, with intervals. Default: BTFL, in the report.",
        autocompletion=completion.methods,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME,...",
        help="Columns beside accuracy: fairness, calibration, cost, or single ones such as worst-decile, sample-time.",
        autocompletion=completing(lambda: ("fairness", "calibration", "cost", *_single_columns())),
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run of `btfl bench`.")]

OF_TRAINING = (
    "rounds",
    "defence",
    "privacy",
    "epsilon",
    "delta",
    "privacy_unit",
    "privacy_mechanism",
    "client_samples",
    "secure",
)
"""Settings of training that are options, too; all others are left to ``--set``."""
_METAVARS = {bool: "[true|false]", int: "INTEGER", float: "NUMBER", Path: "PATH"}
_OTHER_FLAGS = {"methods": "--method"}
_COMPLETIONS: dict[str, Complete] = {
    "dataset": completion.datasets,
    "model": completion.models,
    "methods": completion.methods,
}


def named_columns(typed: list[str] | None) -> tuple[str, ...]:
    """Return the names after ``--columns``, which may have commas between them and may be repeated."""
    return tuple(filter(None, (name.strip() for text in typed or () for name in text.split(","))))


def _single_columns() -> Iterable[str]:
    from btfl.report.extras import EXTRAS

    return EXTRAS


def experiment_options(*, several: bool = False) -> list[click.Parameter]:
    """Return what chooses and changes an experiment: its name or file, and an option for each of its settings.

    Tables and lists other than methods are left to ``--set``, but for ``OF_TRAINING``.

    Parameters
    ----------
    several : whether a number may be several, with commas between them
    """
    from btfl.experiments.experiment import Experiment
    from btfl.recipes.settings import TrainingSettings

    panel = "Experiment"
    known = {each.name: each for each in TrainingSettings.knobs()}
    of_training = [known[name] for name in OF_TRAINING if name != "rounds"]
    single = [each for each in Experiment.knobs() if each.type not in (dict, tuple) or each.name in _OTHER_FLAGS]
    return [
        TyperArgument(
            param_decls=["experiment"],
            required=False,
            metavar="[EXPERIMENT]",
            help="An experiment that comes with btfl, for example quick or table2, or a TOML file.",
            autocompletion=completion.experiments,
        ),
        TyperOption(
            param_decls=["--preset"],
            metavar="NAME",
            help="The same, for one that comes with btfl: demo, quick, ...",
            autocompletion=completion.presets,
            rich_help_panel=panel,
        ),
        *(knob_option(each, panel, None, _default(each), several=several) for each in single),
        knob_option(known["rounds"], panel, None, "the model's", several=several),
        *(knob_option(each, panel, None, _default(each), several=several) for each in of_training),
        TyperOption(
            param_decls=["changes", "--set"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Any other setting, for example `training.batch=64`. May be repeated.",
            autocompletion=completion.settings,
            rich_help_panel=panel,
        ),
    ]


def fault_options(names: tuple[str, ...]) -> list[click.Parameter]:
    """Return the options for these settings of ``FaultSettings``."""
    from btfl.engines.faults import FaultSettings

    return [knob_option(each, None, each.default) for each in FaultSettings.knobs() if each.name in names]


def knob_option(
    knob: Knob, panel: str | None, default: Any, shown: str | bool = True, *, several: bool = False
) -> TyperOption:
    """Make the option of a setting: its type, range and meaning are the knob's.

    Parameters
    ----------
    panel : the panel of the help it stands in
    default : its value if it is not given
    shown : what the help shows as its default; True: the default
    several : whether a number may be several, with commas between them
    """
    repeated, numbers = knob.type is tuple, several and knob.type in (int, float)
    more = f" One of {', '.join(knob.choices)}." if knob.choices else " May be repeated." if repeated else ""
    metavar = "NAME" if knob.choices else _METAVARS.get(knob.type)
    return TyperOption(
        param_decls=[knob.name, _OTHER_FLAGS.get(knob.name, f"--{knob.name.replace('_', '-')}")],
        type=_click_type(knob, several=numbers),
        metavar=f"{metavar},..." if numbers else metavar,
        multiple=repeated,
        default=default,
        show_default=shown,
        help=knob.help + more,
        autocompletion=_COMPLETIONS.get(knob.name),
        rich_help_panel=panel,
    )


def _click_type(knob: Knob, *, several: bool = False) -> click.ParamType:
    if knob.choices:
        return click.Choice(knob.choices)
    if knob.type in (int, float):
        low = knob.least if knob.above is None else knob.above
        high = knob.most if knob.below is None else knob.below
        one, more = (click.IntRange, SeveralInts) if knob.type is int else (click.FloatRange, SeveralFloats)
        kind = more if several else one
        return kind(min=low, max=high, min_open=knob.above is not None, max_open=knob.below is not None)
    return {bool: click.BOOL, Path: click.Path()}.get(knob.type, click.STRING)


def _default(knob: Knob) -> str | bool:
    if knob.default in (None, ""):
        return False
    if knob.type is bool:
        return str(knob.default).lower()
    return ", ".join(knob.default) if knob.type is tuple else str(knob.default)
