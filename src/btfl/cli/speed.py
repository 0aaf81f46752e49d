"""``btfl speed``: what adapting costs on this machine, beside the paper's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from btfl.cli import output

if TYPE_CHECKING:
    from rich.console import Console

    from btfl.runs.costs import Cost

MODELS, METHODS = "cnn,resnet20,cct4", "btfl,fedthe,ttt,memo"


def speed(
    models: Annotated[str, typer.Option(help="Models, with commas between them.")] = MODELS,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Methods, with commas between them, and `onnx` or `onnx-split`. Default: {METHODS}, and those two "
            "where onnxruntime is installed."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples in a repeat; a method that trains sees fewer.")] = 320,
    repeats: Annotated[int, typer.Option(min=1, help="How often each is timed.")] = 5,
    memory: Annotated[bool, typer.Option(help="Also find each one's peak memory, in a process of its own.")] = True,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE.json", help="Keep every number.")] = None,
) -> None:
    """Time the methods at batch 1 and 32 beside the bare forward pass.

    From image to probabilities, on one thread and on synthetic images of CIFAR-10's size; some minutes for all of it.
    Compare the ratio to the forward pass, not the seconds.

    Examples:

    `btfl speed`

    `btfl speed --models cnn --methods btfl,fedthe --samples 64 --repeats 3`
    """
    from dataclasses import asdict

    from btfl.storage import write_json
    from btfl.studies.speed.measure import measure_costs
    from btfl.studies.speed.onnx_paths import ONNX_PATHS, has_onnx

    names = _listed(methods or ",".join([METHODS, *(ONNX_PATHS if has_onnx() else ())]))
    _check(_listed(models), names, onnx=has_onnx())
    costs = []
    with output.console().status("measuring") as status:
        for cost in measure_costs(_listed(models), names, samples=samples, repeats=repeats, memory=memory):
            costs.append(cost)
            status.update(f"measured {cost.title} on {cost.model} at batch {cost.batch}")
    if out is not None:
        write_json(out, [asdict(cost) for cost in costs])
    _show(costs, out)


def _show(costs: list[Cost], out: Path | None) -> None:
    """Print a table for each model and batch size."""
    from btfl.report.cost import cost_table
    from btfl.report.formats import to_plain
    from btfl.report.terminal import terminal_table

    kinds = dict.fromkeys((cost.model, cost.batch) for cost in costs)
    tables = [cost_table([cost for cost in costs if (cost.model, cost.batch) == kind]) for kind in kinds]

    def show(console: Console) -> None:
        for table in tables:
            console.print(terminal_table(table))
        for note in () if output.current().quiet else tables[-1].notes:
            console.print(note, highlight=False, markup=False)
        if out is not None:
            console.print(f"Every number: {out}", highlight=False, markup=False, soft_wrap=True)

    output.emit({"tables": [to_plain(table) for table in tables], "file": out}, show)


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))


def _check(models: list[str], methods: list[str], *, onnx: bool) -> None:
    """Refuse a mistyped name before anything is timed."""
    from btfl.errors import InputError, UnknownNameError
    from btfl.methods.registry import find_method
    from btfl.models import MODELS as KNOWN
    from btfl.studies.speed.onnx_paths import ONNX_PATHS

    for what, named in (("models", models), ("methods", methods)):
        if not named:
            raise InputError(f"--{what} names none: give names with commas between them, or leave the option out")
    for model in models:
        if model not in KNOWN and ":" not in model:
            raise UnknownNameError("model", model, KNOWN)
    for method in methods:
        if method not in ONNX_PATHS:
            find_method(method)
        elif not onnx:
            raise InputError(f"'{method}' needs onnx and onnxruntime: pip install 'btfl[train,onnx]'")
