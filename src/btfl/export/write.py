"""Writing a client for a device: one graph, or the extractor's graph and a bundle for the core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
from onnx import compose

from btfl.core.bundle import ClientBundle
from btfl.export.before import before
from btfl.export.coherent import coherent_graph
from btfl.export.decision import decision_graph
from btfl.export.extractor import extractor_graph
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.coherent import Coherent
from btfl.methods.coherent.settings import CoherentSettings
from btfl.monitor import carrying, levels_for
from btfl.runs.client import DeployedClient
from btfl.storage import write_atomically


def export_whole(
    client: DeployedClient, path: str | Path, settings: BtflSettings | CoherentSettings | None = None
) -> Path:
    """Write one graph: ``images`` and ``state`` in; ``probabilities``, ``e``, more, and ``new_state`` out.

    Parameters
    ----------
    client : a trained client, ``btfl.export.clients.find_client("runs/demo")`` for example
    path : of the ONNX file
    settings : choose the method, BTFL or Coherent; more is BTFL's ``event``, or Coherent's ``all_external``
    """
    if isinstance(settings, CoherentSettings):
        decision = coherent_graph(client.bundle, settings)
    else:
        decision = decision_graph(client.bundle, settings)  # first: it refuses at once what cannot be exported
    extractor = extractor_graph(client.extractor(), before(client))
    whole = compose.merge_models(
        compose.add_prefix(extractor, "extractor_", rename_inputs=False, rename_outputs=False),
        decision,
        io_map=[("features", "features")],
        name="btfl",
    )
    return _write(whole, Path(path))


def export_split(client: DeployedClient, path: str | Path) -> tuple[Path, Path]:
    """Write the extractor's graph, and beside it the bundle, in a folder that ends in ``-bundle``.

    Of the bundle's statistics only sums go with it: the others, which some methods need, hold features of the client's
    training set. The levels of Coherent's monitor, which were found on these features, go along.
    """
    path = Path(path)
    bundle, folder = client.bundle, path.with_name(f"{path.stem}-bundle")
    _write(extractor_graph(client.extractor(), before(client)), path)
    _with_levels(without_features(bundle), bundle).save(folder)
    return path, folder


def without_features(bundle: ClientBundle) -> ClientBundle:
    """Return a bundle with sums alone: without the features and labels of samples."""
    sums = {name: bundle.statistics[name] for name in Coherent.reads if name in bundle.statistics}
    return replace(bundle, statistics=sums)


def _with_levels(alone: ClientBundle, whole: ClientBundle) -> ClientBundle:
    """Return a bundle without features with the levels of Coherent's monitor, if it has what Coherent needs."""
    if any(name not in alone.statistics for name in Coherent.needs):
        return alone
    return carrying(alone, levels_for(Coherent(alone), whole))


def _write(model: onnx.ModelProto, path: Path) -> Path:
    model.producer_name = "btfl"
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))
    return path
