"""What ``btfl serve`` needs of a trained federation, written into an entry of the zoo: bundles without features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from btfl.core.client import Weights
from btfl.core.provenance import Provenance
from btfl.core.summary import Summary
from btfl.errors import InputError
from btfl.export.before import before
from btfl.export.extractor import extractor_graph
from btfl.export.write import stamp, without_features
from btfl.methods.coherent import Coherent
from btfl.monitor import MonitorSettings, levels_for
from btfl.runs.layout import RunFiles
from btfl.runs.trained import TrainedFederation
from btfl.zoo.serving import Serving, save_serving

RECIPE = "fedavg"


def pack_serving(run: Path, folder: Path, weights: Weights | None = None) -> Serving:
    """Write bundles without features, the extractor and the monitors' levels of a finished run into a folder.

    Parameters
    ----------
    run : of ``btfl bench``, with the recipe ``fedavg``
    folder : of the entry
    weights : what the federation's shared weights must be, to the bit; None: any. What follows from them (sums,
        entropies) may differ in its last bits from what it was where they were trained, on another processor
    """
    trained = RunFiles(run).trained()
    if RECIPE not in trained:
        raise InputError(f"{run} has no finished training with the recipe '{RECIPE}', which btfl serve stands on")
    federation = TrainedFederation.load(trained[RECIPE].folder)
    if weights is not None and not _equal(federation.shared, weights):
        raise InputError(
            f"the federation in {run} has other weights than the entry: give a run of `btfl bench --from zoo:NAME`"
        )
    bundles, own, calibrations = {}, {}, {}
    for number in range(len(federation.outcomes)):
        whole = federation.outcome(number).bundle
        train, labels = whole.statistic("train_features"), whole.statistic("train_labels")
        own[number] = Summary.of(train, labels, whole.classes).arrays
        bundles[number] = without_features(whole)
        # the method as it will be served, which is without features
        calibrations[number] = levels_for(Coherent(bundles[number]), whole, MonitorSettings().warm_up)
    client = federation.client(0)
    graph = extractor_graph(client.extractor(), before(client.model))
    graph.producer_name = "btfl"
    stamp(graph, Provenance.of_bundle(client.bundle))
    serving = Serving(
        bundles, own, calibrations, graph.SerializeToString(deterministic=True), RECIPE, federation.digest()
    )
    save_serving(folder, serving)
    return serving


def _equal(some: Weights, others: Weights) -> bool:
    return some.keys() == others.keys() and all(np.array_equal(some[name], others[name]) for name in some)
