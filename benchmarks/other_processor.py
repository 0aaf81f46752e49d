"""Does another processor give the same answers? Make a client and its answers here, compare them there.

    python benchmarks/other_processor.py make FOLDER       # needs all of btfl, and CIFAR-10
    python benchmarks/other_processor.py compare FOLDER    # needs numpy, scipy, safetensors, onnxruntime and btfl

A zoo entry's first client is exported in both forms, with images of its five streams, some as one batch and some one by
one. What is compared: the one graph of each method, the features of the extractor's graph, the numpy core on these
features, and the numpy core on the features of the first processor.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from btfl import Btfl, ClientBundle, Coherent

Arrays = dict[str, NDArray[Any]]
STATES = {"btfl": np.ones(2), "coherent": np.array([1 / 3, 1 / 3, 1.0, 1.0])}
METHODS: dict[str, Any] = {"btfl": Btfl, "coherent": Coherent}


def make(folder: Path, entry: str, count: int) -> None:
    """Export a client, and write images and this processor's answers beside it."""
    from btfl.data.streams import make_manifest, render
    from btfl.experiments.experiment import Experiment
    from btfl.experiments.load import load_data
    from btfl.export.sources import find_fleet
    from btfl.export.write import export_split, export_whole
    from btfl.methods.btfl.settings import BtflSettings
    from btfl.methods.coherent.settings import CoherentSettings
    from btfl.zoo.start import find_start

    experiment, fleet = Experiment(**find_start(entry).experiment), find_fleet(entry)
    data = load_data(experiment)
    manifest = make_manifest(data.source, data.partition, experiment.stream_settings(), experiment.stream_seed)
    number = next(iter(fleet.bundles))
    streams = [stream.values for stream in render(data.source, manifest, number).values()]
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "images.npy", np.concatenate([stream[: count // len(streams)] for stream in streams]))
    assert fleet.extractor is not None
    extractor, bundle = fleet.extractor(), fleet.bundle(number)
    export_split(bundle, folder / "extractor.onnx", extractor)
    for name, settings in (("btfl", BtflSettings()), ("coherent", CoherentSettings())):
        export_whole(bundle, folder / f"{name}.onnx", settings, extractor)
    np.savez(folder / "answers.npz", allow_pickle=False, **answers(folder, None))


def answers(folder: Path, features_there: NDArray[np.float32] | None) -> Arrays:
    """Return what this processor answers, by name."""
    images, found = np.load(folder / "images.npy"), {}
    cuts = [(0, len(images) // 2), *((i, i + 1) for i in range(len(images) // 2, len(images)))]
    extractor = _session(folder / "extractor.onnx")
    features = np.concatenate([extractor.run(None, {"images": images[i:j]})[0] for i, j in cuts])
    found["features"] = features
    bundle = ClientBundle.load(folder / "extractor-bundle")
    for name, method in METHODS.items():
        graph, state, parts = _session(folder / f"{name}.onnx"), STATES[name], []
        for i, j in cuts:
            *told, state = graph.run(None, {"images": images[i:j], "state": state})
            parts.append(told)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        for column, values in zip(("probabilities", "e"), columns, strict=False):
            found[f"{name}, one graph: {column}"] = values
        found[f"{name}, one graph: state at the end"] = state
        given = features if features_there is None else features_there
        for what, rows in (("numpy core", features), ("numpy core, same features", given)):
            core = method(bundle)
            found[f"{name}, {what}: probabilities"] = np.concatenate([core.predict(rows[i:j]) for i, j in cuts])
            again = method(bundle)
            whole = again.predict(rows)
            found[f"{name}, {what}: e"] = again.trace["e"]
            assert (whole == found[f"{name}, {what}: probabilities"]).all(), "cuts of one stream differ"
    return found


def compare(folder: Path) -> None:
    """Print how far this processor's answers are from those in the folder."""
    there = dict(np.load(folder / "answers.npz"))
    here = answers(folder, there["features"])
    print(f"{platform.machine()}, {len(there['features'])} images; cuts of one stream agree to the bit here, too")
    print("| what | largest difference | same to the bit | same class |\n| --- | ---: | ---: | ---: |")
    for name, values in there.items():
        same = f"{(here[name] == values).mean():.1%}"
        classes = "" if values.ndim < 2 or name == "features" else (here[name].argmax(1) == values.argmax(1)).mean()
        told = f"{classes:.1%}" if classes != "" else ""
        print(f"| {name} | {np.abs(here[name] - values).max():.1e} | {same} | {told} |")


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Make or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entry", default="zoo:cifar10-cnn-dir0.1")
    parser.add_argument("--count", type=int, default=300, help="of images")
    options = parser.parse_args()
    if options.what == "make":
        make(options.folder, options.entry, options.count)
    else:
        compare(options.folder)


if __name__ == "__main__":
    main()
