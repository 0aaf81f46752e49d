"""``btfl export``: a trained client for a device without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from btfl.cli import completion, output
from btfl.cli.completion import completing


def export(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="A finished run, a trained federation, or a client's folder in it.")
    ],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="The file to write.")],
    client: Annotated[int | None, typer.Option(help="Number of the client; 0 if not given.")] = None,
    recipe: Annotated[
        str,
        typer.Option(help="Which training of the run.", autocompletion=completion.recipes),
    ] = "fedavg",
    method: Annotated[
        str,
        typer.Option(
            help="Method that decides: btfl, or coherent (ours).",
            autocompletion=completing(lambda: ("btfl", "coherent")),
        ),
    ] = "btfl",
    extractor_only: Annotated[
        bool,
        typer.Option(
            "--extractor-only", help="Write the extractor alone, and beside it the bundle for btfl's numpy core."
        ),
    ] = False,
) -> None:
    """Write a client as ONNX, to run in onnxruntime without torch.

    One graph: `images` (n, height, width, channels), uint8, and `state` (a, b), beginning with (1, 1), go in;
    `probabilities`, `e`, `event` and `new_state` come out. Pass `new_state` with the next images. With
    `--method coherent` the state has four numbers, beginning with (1/3, 1/3, 1, 1), and `all_external` comes out, the
    probability that the stream has turned external, in place of `event`.

    Examples:

    `btfl export runs/demo --client 3 --onnx client.onnx`

    `btfl export runs/demo --method coherent --onnx client.onnx`

    `btfl export runs/demo --onnx extractor.onnx --extractor-only`
    """
    from btfl.export import need_onnx

    need_onnx()
    from btfl.errors import UnknownNameError
    from btfl.export.clients import find_client
    from btfl.export.write import export_split, export_whole
    from btfl.methods.btfl.settings import BtflSettings
    from btfl.methods.coherent.settings import CoherentSettings
    from btfl.recipes.registry import RECIPES

    known: dict[str, BtflSettings | CoherentSettings] = {"btfl": BtflSettings(), "coherent": CoherentSettings()}
    if method not in known:
        raise UnknownNameError("method that can be exported", method, known)
    if recipe not in RECIPES:
        raise UnknownNameError("recipe", recipe, RECIPES)
    found = find_client(source, client, recipe)
    paths = list(export_split(found, onnx)) if extractor_only else [export_whole(found, onnx, known[method])]
    output.emit_lines({"files": paths}, *paths)
