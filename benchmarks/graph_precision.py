"""Both graphs in double and in single precision against the library, on the streams of a zoo entry; as a table.

    OMP_NUM_THREADS=1 python benchmarks/graph_precision.py zoo:cifar10-cnn-dir0.1

The same features, from the entry's extractor, go through the library and in batches of 32 through the graph of the
decision, which has its own memory; a stream begins with none.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zoo_streams import ZooStreams, session

from btfl import Btfl, ClientBundle, Coherent
from btfl.export.coherent import coherent_graph
from btfl.export.decision import decision_graph
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.coherent.settings import CoherentSettings

BATCH = 32
BEGUN = {"BTFL": (1.0, 1.0), "Coherent": (1 / 3, 1 / 3, 1.0, 1.0)}


def graphs_of(bundle: ClientBundle) -> dict[tuple[str, str], Any]:
    """Return the sessions of a client, by method and precision."""
    made = {
        ("BTFL", "double"): decision_graph(bundle),
        ("BTFL", "single"): decision_graph(bundle, BtflSettings(precision="single")),
        ("Coherent", "double"): coherent_graph(bundle),
        ("Coherent", "single"): coherent_graph(bundle, CoherentSettings(precision="single")),
    }
    return {name: session(graph.SerializeToString()) for name, graph in made.items()}


def answers(graph: Any, features: NDArray[np.float32], begun: NDArray[Any]) -> list[NDArray[Any]]:
    """Return probabilities, e, and the third that a graph tells of each sample."""
    parts, state = [], begun
    for start in range(0, len(features), BATCH):
        *told, state = graph.run(None, {"features": features[start : start + BATCH], "state": state})
        parts.append(told)
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entry", help="zoo:NAME")
    parser.add_argument("--clients", type=int, default=None, help="only the first so many")
    options = parser.parse_args()
    zoo = ZooStreams(options.entry)
    extractor = session(zoo.extractor().SerializeToString())
    found: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for bundle, streams in zoo.clients(options.clients):
        graphs = graphs_of(bundle)
        for stream in streams:
            (features,) = extractor.run(None, {"images": stream.values})
            for (name, precision), graph in graphs.items():
                method = Btfl(bundle) if name == "BTFL" else Coherent(bundle)
                expected = method.predict(features)
                begun = np.array(BEGUN[name], np.float32 if precision == "single" else np.float64)
                probabilities, e, told = answers(graph, features, begun)
                columns = [
                    np.abs(e - method.trace["e"]),
                    np.abs(probabilities - expected).max(axis=1),
                    probabilities.argmax(axis=1) != expected.argmax(axis=1),
                    told != method.trace["event"] if name == "BTFL" else np.zeros(len(e)),
                ]
                found.setdefault((name, precision), []).append(np.stack(columns, axis=1).astype(np.float64))
    print("| method | precision | samples | e: most | e: 99.9 % | probability: most | other class | other event |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (name, precision), parts in found.items():
        rows = np.concatenate(parts)
        usual, classes, events = np.quantile(rows[:, 0], 0.999), rows[:, 2].sum(), rows[:, 3].sum()
        cells = f"{rows[:, 0].max():.1e} | {usual:.1e} | {rows[:, 1].max():.1e} | {classes:.0f} | {events:.0f}"
        print(f"| {name} | {precision} | {len(rows):,} | {cells} |")


if __name__ == "__main__":
    main()
