"""Writing a client for a device: one graph, or the extractor's graph and a bundle for the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import compose, helper

from btfl.core.bundle import ClientBundle
from btfl.core.provenance import KEY, Provenance
from btfl.errors import InputError
from btfl.export.before import before
from btfl.export.coherent import coherent_graph
from btfl.export.decision import decision_graph
from btfl.export.extractor import extractor_graph
from btfl.export.smaller import StoredAs, with_weights
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.coherent import Coherent
from btfl.methods.coherent.settings import CoherentSettings
from btfl.monitor import carrying, levels_for
from btfl.runs.client import DeployedClient
from btfl.runs.layout import client_name
from btfl.storage import replacing_folder, write_atomically

EXTRACTOR = "extractor.onnx"
"""The extractor of a fleet's folder."""
METHOD_SETTINGS = "method_settings"
"""The name of a method's settings among the metadata of an ONNX file, as JSON."""
AnySettings = BtflSettings | CoherentSettings


def export_whole(
    client: DeployedClient | ClientBundle,
    path: str | Path,
    settings: AnySettings | None = None,
    extractor: onnx.ModelProto | None = None,
    weights: StoredAs = "float32",
) -> Path:
    """Write one graph: ``images`` and ``state`` in; ``probabilities``, ``e``, more, and ``new_state`` out.

    Parameters
    ----------
    client : a trained client, ``btfl.export.clients.find_client("runs/demo")`` for example; or a bundle, which takes
        ``features`` in place of images unless there is an extractor
    path : of the ONNX file
    settings : choose the method, BTFL or Coherent; more is BTFL's ``event``, or Coherent's ``all_external``
    extractor : the extractor's graph, for a bundle
    weights : how the extractor's weights are stored (``btfl.export.smaller``)
    """
    bundle = client if isinstance(client, ClientBundle) else client.bundle
    if isinstance(settings, CoherentSettings):
        decision = coherent_graph(bundle, settings)
    else:
        decision = decision_graph(bundle, settings)  # first: it refuses at once what cannot be exported
    if isinstance(client, DeployedClient):
        extractor = extractor_graph(client.extractor(), before(client.model))
    whole = decision
    if extractor is not None:
        plain = with_weights(extractor, weights)
        del plain.metadata_props[:]
        whole = compose.merge_models(
            compose.add_prefix(plain, "extractor_", rename_inputs=False, rename_outputs=False),
            decision,
            io_map=[("features", "features")],
            name="btfl",
        )
    stamp(whole, Provenance.of_bundle(bundle), settings or BtflSettings())
    return _write(whole, Path(path))


def export_split(
    client: DeployedClient | ClientBundle,
    path: str | Path,
    extractor: onnx.ModelProto | None = None,
    weights: StoredAs = "float32",
) -> tuple[Path, Path]:
    """Write the extractor's graph, and beside it the bundle, in a folder that ends in ``-bundle``.

    Of the bundle's statistics only sums go with it: the others, which some methods need, hold features of the client's
    training set. The levels of Coherent's monitor, which were found on these features, go along. A kill between the two
    leaves files of different rounds, which ``check_fits`` tells apart; ``export_fleet`` replaces all at once.
    """
    path = Path(path)
    bundle = client if isinstance(client, ClientBundle) else client.bundle
    folder = path.with_name(f"{path.stem}-bundle")
    if isinstance(client, DeployedClient):
        extractor = extractor_graph(client.extractor(), before(client.model))
        stamp(extractor, Provenance.of_bundle(bundle))
    if extractor is None:
        raise InputError("there is no extractor beside this bundle: name it with --extractor, or its --federation")
    _write(with_weights(extractor, weights), path)
    _with_levels(bundle).save(folder)
    return path, folder


def export_fleet(bundles: Mapping[int, Callable[[], ClientBundle]], extractor: onnx.ModelProto, folder: Path) -> int:
    """Write one extractor and a bundle for each client into a folder, which is replaced as a whole.

    Bundles are read and written one by one: memory does not grow with the clients. Levels of alarms are not looked for,
    which would take a second a client; a server finds approximate ones from the sums. Returned is how many there are.

    Parameters
    ----------
    bundles : what gives each client's bundle, by number
    extractor : that all of them read
    folder : ``extractor.onnx`` and ``client-000003`` and so on will be in it
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / EXTRACTOR).is_file():
        raise InputError(f"{folder} is there and holds something else: name another folder")
    with replacing_folder(folder) as new:
        _write(extractor, new / EXTRACTOR)
        for number, bundle in bundles.items():
            without_features(bundle()).save(new / client_name(number))
    return len(bundles)


def stamp(model: onnx.ModelProto, provenance: Provenance | None, settings: AnySettings | None = None) -> None:
    """Write into a graph where it comes from, and which method it decides by, if any."""
    told: dict[str, str] = {}
    if settings is not None:
        told[METHOD_SETTINGS] = json.dumps(settings.as_dict(), sort_keys=True)
    if provenance is not None:
        method = "" if settings is None else "coherent" if isinstance(settings, CoherentSettings) else "btfl"
        told[KEY] = replace(provenance, method=method).to_text()
    helper.set_model_props(model, told)


def provenance_of_model(model: onnx.ModelProto) -> Provenance | None:
    """Return where a graph comes from; None if it does not say."""
    return Provenance.of_model({entry.key: entry.value for entry in model.metadata_props})


def without_features(bundle: ClientBundle) -> ClientBundle:
    """Return a bundle with sums alone: without the features and labels of samples."""
    sums = {name: bundle.statistics[name] for name in Coherent.reads if name in bundle.statistics}
    return replace(bundle, statistics=sums)


def _with_levels(bundle: ClientBundle) -> ClientBundle:
    """Return a bundle with sums alone that takes along what its features say of alarms, where Coherent can be used."""
    alone = without_features(bundle)
    has_features = any(f"{part}_features" in bundle.statistics for part in ("validation", "train"))
    if not has_features or any(name not in bundle.statistics for name in Coherent.needs):
        return alone
    return carrying(alone, levels_for(Coherent(alone), bundle))


def _write(model: onnx.ModelProto, path: Path) -> Path:
    model.producer_name = "btfl"
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))
    return path
