"""Options that several commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_WORKERS = min(os.cpu_count() or 1, 8)

# An experiment: where it is written down, and single settings of it.
ExperimentFile = Annotated[
    Path | None, typer.Argument(metavar="[EXPERIMENT.toml]", help="An experiment written down as TOML.")
]
Preset = Annotated[str | None, typer.Option(help="An experiment that comes with btfl: demo, quick, ...")]
Dataset = Annotated[str | None, typer.Option(help="The dataset; see `btfl data list`.")]
Root = Annotated[Path | None, typer.Option(help="Where the dataset is, if not in the cache.")]
Shift = Annotated[str | None, typer.Option(help="The other domain: a name, a file, or `none`.")]
Model = Annotated[str | None, typer.Option(help="cnn, resnet20, cct4, mlp, or your own `module:Factory`.")]
Clients = Annotated[int | None, typer.Option(help="How many clients.")]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet parameter: the smaller, the more clients differ.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of training.")]
Split = Annotated[str | None, typer.Option(help="honest, or redrawn (the published, leaking procedure).")]
Methods = Annotated[list[str] | None, typer.Option(help="A method to compare; may be given several times.")]
Seed = Annotated[int | None, typer.Option(help="What every random choice follows from.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, `training.batch=64` say."),
]

# How and where it runs.
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where the run is kept.")]
Workers = Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes to train and evaluate with.")]
Device = Annotated[
    str, typer.Option(help="Train on: cpu, cuda, or auto (a GPU if there is one). Only cpu repeats to the byte.")
]
MinShare = Annotated[float, typer.Option(help="Stop if fewer than this share of the clients asked can answer.")]
TimeLimit = Annotated[float, typer.Option(help="Seconds a client has for an answer.")]
SmallestCohort = Annotated[
    int, typer.Option(min=2, help="Never send out sums over fewer clients' data than this; see docs/privacy.md.")
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="START", help="Train nothing: start from `zoo:NAME` or a finished run's folder."),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write each round's metrics for TensorBoard.")]
