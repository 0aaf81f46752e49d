"""``btfl export``: a trained client for a device without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from btfl.cli import completion, output
from btfl.cli.completion import completing

if TYPE_CHECKING:
    from onnx import ModelProto

    from btfl.core.bundle import ClientBundle
    from btfl.methods.btfl.settings import BtflSettings
    from btfl.methods.coherent.settings import CoherentSettings
    from btfl.runs.client import DeployedClient


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A finished run, a trained federation or a client's folder in it, `zoo:NAME`, the folder in which a "
            "Flower node keeps its client, or a bundle.",
        ),
    ],
    onnx: Annotated[Path | None, typer.Option("--onnx", metavar="FILE", help="The file to write.")] = None,
    all_clients: Annotated[
        Path | None,
        typer.Option(
            "--all-clients", metavar="FOLDER", help="Write one extractor and the bundle of every client into a folder."
        ),
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(metavar="FINAL", help="With a node's folder: what the server keeps, its `final` or its run."),
    ] = None,
    extractor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With a bundle: the extractor that it was exported with.")
    ] = None,
    client: Annotated[int | None, typer.Option(help="Number of the client; 0 if not given.")] = None,
    recipe: Annotated[
        str,
        typer.Option(help="Which training of the run.", autocompletion=completion.recipes),
    ] = "fedavg",
    method: Annotated[
        str,
        typer.Option(
            help="Method that decides: btfl, or coherent (ours); with settings as in btfl[count=after].",
            autocompletion=completing(lambda: ("btfl", "coherent")),
        ),
    ] = "btfl",
    extractor_only: Annotated[
        bool,
        typer.Option(
            "--extractor-only", help="Write the extractor alone, and beside it the bundle for btfl's numpy core."
        ),
    ] = False,
    weights: Annotated[
        str,
        typer.Option(
            help="How the extractor's weights are stored: float32, float16 (half the bytes) or int8 (a quarter). It "
            "computes in float32 all the same.",
            autocompletion=completing(lambda: ("float32", "float16", "int8")),
        ),
    ] = "float32",
    looks: Annotated[
        bool,
        typer.Option(
            "--looks",
            help="Take along how the client's own samples look, so that a device alarms at a frame unlike all of them. "
            "Reads the data of the run.",
        ),
    ] = False,
    root: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="With --looks: where the data are, if not where the run found them."),
    ] = None,
) -> None:
    """Write a client as ONNX, to run in onnxruntime without torch.

    One graph: `images` (n, height, width, channels), uint8, and `state` (a, b), beginning with (1, 1), go in;
    `probabilities`, `e`, `event` and `new_state` come out. Pass `new_state` with the next images. With
    `--method coherent` the state has four numbers, beginning with (1/3, 1/3, 1, 1), and `all_external` comes out, the
    probability that the stream has turned external, in place of `event`.

    Examples:

    `btfl export runs/demo --client 3 --onnx client.onnx`

    `btfl export runs/demo --method coherent --onnx client.onnx`

    `btfl export runs/demo --method "coherent[precision=single]" --onnx client.onnx`

    `btfl export runs/demo --onnx extractor.onnx --extractor-only`

    `btfl export runs/demo --onnx extractor.onnx --extractor-only --weights int8`

    `btfl export runs/demo --onnx extractor.onnx --extractor-only --looks`

    `btfl export runs/demo --all-clients fleet`

    `btfl export node-3 --federation server-run --onnx client.onnx`

    `btfl export zoo:cifar10-cnn-dir0.1-quick --client 3 --onnx client.onnx`
    """
    from btfl.export import need_onnx

    need_onnx()
    from btfl.errors import InputError, UnknownNameError
    from btfl.export.looks import fleet_with_looks, looks_of_run, with_looks
    from btfl.export.smaller import StoredAs, with_weights
    from btfl.export.sources import find_fleet
    from btfl.export.write import export_fleet, export_split, export_whole
    from btfl.recipes.registry import RECIPES

    settings = _settings(method)
    if weights not in get_args(StoredAs):
        raise UnknownNameError("kind of weights", weights, get_args(StoredAs))
    stored: StoredAs = weights  # type: ignore[assignment]
    if recipe not in RECIPES:
        raise UnknownNameError("recipe", recipe, RECIPES)
    if (onnx is None) == (all_clients is None):
        raise InputError("say what to write: --onnx FILE for one client, or --all-clients FOLDER")
    if looks and all_clients is None and not extractor_only:
        raise InputError("--looks goes into a bundle, and one graph has none: add --extractor-only, or --all-clients")
    if root is not None and not looks:
        raise InputError("--root says where the samples are that --looks reads: add --looks")
    look = looks_of_run(source, root) if looks else None
    if all_clients is not None:
        if client is not None or extractor_only:
            raise InputError("--all-clients writes every client, and the extractor apart: leave the other options out")
        fleet = find_fleet(source, recipe, federation, extractor)
        if fleet.extractor is None:
            raise InputError("there is no extractor beside this bundle: name it with --extractor, or its --federation")
        bundles = fleet.bundles if look is None else fleet_with_looks(fleet.bundles, look)
        written = export_fleet(bundles, with_weights(fleet.extractor(), stored), all_clients)
        said = f"{all_clients}: one extractor, {written} bundles"
        output.emit_lines({"folder": all_clients, "bundles": written}, said)
        return
    assert onnx is not None
    bundle, graph = _one(source, client, recipe, federation, extractor)
    if extractor_only:
        if look is not None:
            bundle = with_looks(bundle, look(client or 0))
        paths = list(export_split(bundle, onnx, graph, stored))
    else:
        paths = [export_whole(bundle, onnx, settings, graph, stored)]
    output.emit_lines({"files": paths}, *paths)


def _one(
    source: str, client: int | None, recipe: str, federation: Path | None, extractor: Path | None
) -> tuple[DeployedClient | ClientBundle, ModelProto | None]:
    """Return one client, or its bundle and the extractor's graph."""
    from btfl.errors import InputError
    from btfl.export.clients import find_client
    from btfl.export.sources import BUNDLE, find_fleet
    from btfl.runs.layout import FederationFiles, client_number

    folder = Path(source)
    within = any(FederationFiles(place).record.exists() for place in folder.resolve().parents[:2])
    in_federation = client_number(folder) is not None and within and federation is None and extractor is None
    if not source.startswith("zoo:") and (in_federation or not (folder / BUNDLE).is_file()):
        if federation is not None or extractor is not None:
            raise InputError(f"--federation and --extractor go with a bundle's folder, and {folder} is none")
        return find_client(folder, client, recipe), None
    fleet = find_fleet(source, recipe, federation, extractor)
    return fleet.bundle(client), None if fleet.extractor is None else fleet.extractor()


def _settings(method: str) -> BtflSettings | CoherentSettings:
    """Return the settings of a method that can be exported, such as ``btfl[count=after]``."""
    from btfl.errors import InputError, UnknownNameError
    from btfl.methods.btfl.settings import BtflSettings
    from btfl.methods.coherent.settings import CoherentSettings
    from btfl.methods.registry import find_method

    name, known = method.partition("[")[0].strip(), ("btfl", "coherent")
    if name not in known:
        raise UnknownNameError("method that can be exported", name, known)
    chosen, plain = find_method(method), find_method(name)
    if (chosen.test_batch, chosen.global_head) != (plain.test_batch, plain.global_head):
        raise InputError(
            "test_batch and global_head are the benchmark's: a graph takes any batch and the bundle's heads"
        )
    settings = chosen.method.settings_class.make(**chosen.settings)
    assert isinstance(settings, BtflSettings | CoherentSettings)
    return settings
