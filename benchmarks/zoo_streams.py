"""The clients of a zoo entry and what they see: shared by benchmarks, nothing to run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import onnx
import onnxruntime

from btfl import ClientBundle
from btfl.data.streams import Stream, make_manifest, render
from btfl.experiments.experiment import Experiment
from btfl.experiments.load import load_data
from btfl.export.sources import find_fleet
from btfl.zoo.start import find_start


class ZooStreams:
    """A zoo entry with its data: the extractor, and the streams of its clients."""

    def __init__(self, entry: str) -> None:
        experiment, self.fleet = Experiment(**find_start(entry).experiment), find_fleet(entry)
        self.source = (data := load_data(experiment)).source
        self.manifest = make_manifest(data.source, data.partition, experiment.stream_settings(), experiment.stream_seed)

    def extractor(self) -> onnx.ModelProto:
        """Return the graph that turns images into features."""
        assert self.fleet.extractor is not None
        return self.fleet.extractor()

    def clients(self, most: int | None = None) -> Iterator[tuple[ClientBundle, list[Stream]]]:
        """Yield the bundle and the five streams of each client, or of the first so many."""
        for number in islice(self.fleet.bundles, most):
            yield self.fleet.bundle(number), list(render(self.source, self.manifest, number).values())


def session(model: bytes) -> onnxruntime.InferenceSession:
    """Return a graph in onnxruntime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
