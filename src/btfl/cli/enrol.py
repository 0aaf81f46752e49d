"""``btfl enrol``: a bundle for a device that took no part in training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from btfl.cli import completion, output

if TYPE_CHECKING:
    from rich.console import Console


def enrol(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FEDERATION",
            help="A finished run, a trained federation, the `final` folder of a Flower server, or `zoo:NAME`.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the bundle is written.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The device's own samples: an npz with `x` (or `features`), and `y` and `classes` if it has labels. "
            "Nothing is known of the device if it is not given.",
        ),
    ] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Leave labels in the file unread.")] = False,
    recipe: Annotated[
        str, typer.Option(help="Which training of the run.", autocompletion=completion.recipes)
    ] = "fedavg",
) -> None:
    """Make a bundle for a new device, from what the server keeps of a federation.

    With labelled samples it has a personal head, label shares and class means of its own; with a handful of labels
    these lean on everyone's; with unlabelled samples the shares are found by expectation maximisation; with nothing
    the device gives the global answer. The bundle says which of these it is (docs/enrolment.md).

    A bundle that is in the folder already is replaced in one step.

    Examples:

    `btfl enrol runs/demo --data mine.npz --out device-7`

    `btfl enrol runs/demo --data mine.npz --unlabelled --out device-7`

    `btfl enrol zoo:cifar10-cnn-dir0.1-quick --out device-7`
    """
    from rich.padding import Padding

    from btfl.errors import InputError, UnknownNameError
    from btfl.export.enrolling import enrol_device, find_server, read_own_data
    from btfl.recipes.registry import RECIPES

    if recipe not in RECIPES:
        raise UnknownNameError("recipe", recipe, RECIPES)
    if unlabelled and data is None:
        raise InputError("--unlabelled is about the labels in a file: name it with --data, or leave both out")
    server, own = find_server(source, recipe), None if data is None else read_own_data(data)
    bundle = enrol_device(server, own, unlabelled=unlabelled)
    bundle.save(out)
    if own is not None and own.names and not server.classes and not unlabelled:
        output.say("note: the federation does not say what its classes are called: labels were taken as its numbers")
    told = bundle.metadata["enrolment"]

    def show(console: Console) -> None:
        brought = f"{_counted(told['samples'], 'sample')}, {_counted(told['labels'], 'label')}"
        console.print(f"{out}: enrolled with {told['level']} ({brought})", soft_wrap=True)
        for what in ("can", "cannot"):
            console.print(Padding(f"{what}: {told[what]}", (0, 0, 0, 2)))

    output.emit({"folder": out, **told}, show, highlight=False, markup=False)


def _counted(number: int, of: str) -> str:
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"
