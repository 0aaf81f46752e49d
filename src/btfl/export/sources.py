"""What can be exported: a run, a trained federation, an entry of the zoo, a node's own folder, or a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from btfl.core.bundle import ClientBundle
from btfl.core.provenance import Provenance, check_fits
from btfl.errors import InputError, StorageError
from btfl.export.before import before
from btfl.export.clients import federation_in
from btfl.export.extractor import extractor_graph
from btfl.export.write import provenance_of_model, stamp
from btfl.runs.client import DeployedClient
from btfl.runs.enrolling import RECIPES
from btfl.runs.layout import FederationFiles, TrainingFiles
from btfl.runs.trained import TrainedFederation, load_outcome
from btfl.storage import LARGEST_TENSORS, read_file
from btfl.zoo.serving import PREFIX, entry_folder, load_serving

BUNDLE = "bundle.json"


@dataclass(frozen=True, eq=False)
class Fleet:
    """Clients to export, each read when its turn comes, and the extractor that all of them share.

    Parameters
    ----------
    bundles : what gives each client's bundle, by number
    extractor : gives the extractor as ONNX; None: there is none, only bundles
    """

    bundles: Mapping[int, Callable[[], ClientBundle]]
    extractor: Callable[[], onnx.ModelProto] | None

    def bundle(self, number: int | None) -> ClientBundle:
        """Return a client's bundle; None: the first one's."""
        wanted = next(iter(self.bundles)) if number is None else number
        if wanted not in self.bundles:
            raise InputError(f"there is no client {wanted}: there are {_listed(list(self.bundles))}")
        return self.bundles[wanted]()


def find_fleet(
    source: str, recipe: str = "fedavg", federation: Path | None = None, extractor: Path | None = None
) -> Fleet:
    """Find what is to be exported.

    Parameters
    ----------
    source : ``zoo:NAME``; the folder of a run, a training, a trained federation or a client in one; the folder in which
        a Flower node keeps its client; or a folder with a bundle
    recipe : which training of a run
    federation : with a node's folder: what its server keeps (``final/``, or the run around it)
    extractor : with a bundle: the extractor as ONNX
    """
    if source.startswith(PREFIX):
        return _of_zoo(entry_folder(source.removeprefix(PREFIX)))
    folder = Path(source)
    if (folder / BUNDLE).is_file():
        return _of_bundle(folder, federation, extractor)
    for name, given in (("federation", federation), ("extractor", extractor)):
        if given is not None:
            raise InputError(f"--{name} goes with a bundle's folder, and {folder} is none")
    trained = federation_in(folder, recipe)
    if trained.spec["recipe"] not in RECIPES:
        raise InputError(
            f"clients of '{trained.spec['recipe']}' have networks of their own: export them one by one. One extractor "
            f"for all is what {', '.join(RECIPES)} leave"
        )
    here = [number for number in range(len(trained.outcomes)) if number not in set(trained.missing)]
    if not here:
        raise InputError(f"the clients of {folder} keep their bundles on their own devices: export a node's folder")

    def graph() -> onnx.ModelProto:
        return graph_of(trained.client(here[0]))

    return Fleet({number: partial(_bundle_of, trained, number) for number in here}, graph)


def _bundle_of(trained: TrainedFederation, number: int) -> ClientBundle:
    return trained.outcome(number).bundle


def graph_of(client: DeployedClient) -> onnx.ModelProto:
    """Return a client's extractor as ONNX, with where it comes from."""
    model = extractor_graph(client.extractor(), before(client.model))
    stamp(model, Provenance.of_bundle(client.bundle))
    return model


def _of_zoo(folder: Path) -> Fleet:
    serving = load_serving(folder)
    content = serving.extractor
    if content is None:
        raise StorageError(f"{folder.name} has no extractor: `btfl zoo serving` adds it")
    return Fleet(
        {number: partial(serving.bundles.__getitem__, number) for number in sorted(serving.bundles)},
        lambda: onnx.load_from_string(content),
    )


def _read_model(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load_from_string(read_file(path, LARGEST_TENSORS))
    except DecodeError:
        model = onnx.ModelProto()
    if not model.graph.output:  # an empty file is a model, too
        raise StorageError(
            f"{path} is no ONNX file, or it is damaged; `btfl export --extractor-only` writes extractors"
        )
    return model


def _of_bundle(folder: Path, federation: Path | None, extractor: Path | None) -> Fleet:
    bundle = ClientBundle.load(folder)
    own = {0: lambda: bundle}
    if extractor is not None:
        model = _read_model(extractor)
        check_fits(Provenance.of_bundle(bundle), provenance_of_model(model))
        width = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
        if width and width != bundle.dimensions:
            raise InputError(
                f"the extractor {extractor} gives {width} features, but the bundle's heads read {bundle.dimensions}: "
                "it is another one"
            )
        return Fleet(own, lambda: model)
    trained = _server_of(folder, federation)
    if trained is None:
        return Fleet(own, None)
    check_fits(Provenance.of_bundle(bundle), trained.provenance)
    networks = {"global": trained.shared, **load_outcome(folder).networks}
    return Fleet(own, lambda: graph_of(DeployedClient(bundle, networks, trained.model)))


def _server_of(folder: Path, federation: Path | None) -> TrainedFederation | None:
    """Return what the server keeps: as it was named, or where a node that names no folder leaves its own beside it."""
    if federation is not None:
        return federation_in(federation)
    beside = TrainingFiles(folder.resolve().parent.parent)
    if folder.resolve().parent == beside.clients and beside.final.record.exists():
        return TrainedFederation.load(beside.final.folder)
    within = next((place for place in folder.resolve().parents[:2] if FederationFiles(place).record.exists()), None)
    return None if within is None else TrainedFederation.load(within)


def _listed(numbers: list[int]) -> str:
    whole = numbers == list(range(len(numbers)))
    return f"clients 0 to {len(numbers) - 1}" if whole and len(numbers) > 1 else ", ".join(map(str, numbers[:12]))
