"""What smaller weights of the extractor cost: accuracy, e and features of every client of a zoo entry; as a table.

    OMP_NUM_THREADS=1 python benchmarks/small_weights.py zoo:cifar10-cnn-dir0.1

Every client's five streams go through the extractor in onnxruntime with weights stored as float32, float16 and int8
(``btfl export --weights``), and then through both methods with the bundle as it was made in float32.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from typing import get_args

import numpy as np
from zoo_streams import ZooStreams, session

from btfl import Btfl, Coherent
from btfl.export.smaller import StoredAs, with_weights
from btfl.methods.base import Method


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entry", help="zoo:NAME")
    parser.add_argument("--clients", type=int, default=None, help="only the first so many")
    options = parser.parse_args()
    zoo = ZooStreams(options.entry)
    graph = zoo.extractor()
    graphs = {stored: with_weights(graph, stored).SerializeToString() for stored in get_args(StoredAs)}
    sessions = {stored: session(content) for stored, content in graphs.items()}
    methods: dict[str, type[Method]] = {"BTFL": Btfl, "Coherent": Coherent}
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for bundle, streams in zoo.clients(options.clients):
        for stream in streams:
            features = {stored: one.run(None, {"images": stream.values})[0] for stored, one in sessions.items()}
            for title, make in methods.items():
                exact = np.zeros(0)
                for stored, rows in features.items():
                    method = make(bundle)
                    right = method.predict(rows).argmax(axis=1) == stream.labels
                    e = method.trace["e"]
                    exact = e if stored == "float32" else exact
                    told = float(right.mean()), float(e.mean()), float(np.abs(e - exact).mean())
                    found.setdefault((title, stored), []).append(told)
    print("| method | weights | file, kB | accuracy, % | mean e | mean change of e |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for (title, stored), rows_ in sorted(found.items()):
        accuracy, e, change = np.mean(rows_, axis=0)
        size = len(graphs[stored]) / 1e3
        print(f"| {title} | {stored} | {size:.0f} | {100 * accuracy:.2f} | {e:.4f} | {change:.5f} |")


if __name__ == "__main__":
    main()
