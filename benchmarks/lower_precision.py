"""Is an extractor faster that computes in int8 or float16? Both beside float32 in onnxruntime, in one run.

    OMP_NUM_THREADS=1 python benchmarks/lower_precision.py --models zoo:cifar10-cnn-dir0.1,resnet20

In int8 by onnxruntime's dynamic quantisation: weights are int8 or uint8, and every layer's input is rounded to uint8
when it is there (``ConvInteger``). In float16 by its own conversion; where the processor has no kernel for it,
onnxruntime puts casts around what it computes in float32. Timed and printed as in benchmarks/device.py; the last
column is how far the features are from float32's.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from device import BATCHES, Case, Device, called, device_of, session, time_rounds
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

KINDS = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}


def extractors(device: Device, batch: int) -> dict[str, Case]:
    """Return the extractor as it is, and in each lower precision."""
    graph = onnx.ModelProto.FromString(device.extractor.SerializeToString())
    del graph.graph.value_info[:]  # shapes of weights that quantisation turns
    found = {"float32": called(session(graph.SerializeToString(), batch, any_batch=True))}
    half = convert_float_to_float16(onnx.ModelProto.FromString(graph.SerializeToString()), keep_io_types=True)
    found["float16"] = called(session(half.SerializeToString(), batch, any_batch=True))
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "float32.onnx", Path(folder) / "small.onnx"
        onnx.save(graph, source)
        for kind, weight_type in KINDS.items():
            quantize_dynamic(source, made, weight_type=weight_type)
            found[kind] = called(session(made.read_bytes(), batch, any_batch=True))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="zoo:cifar10-cnn-dir0.1,resnet20", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=15, help="how often each case is timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    print("| model | weights | batch 1, us | x float32 | batch 32, us | x float32 | features, relative difference |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for model in options.models.split(","):
        device = device_of(model)
        rows: dict[str, list[str]] = {}
        for batch in BATCHES:
            cases = extractors(device, batch)
            times = time_rounds(cases, device.images, batch, options.rounds)
            for place, kind in enumerate(cases):
                ratio = np.median(times[:, place] / times[:, 0])
                rows.setdefault(kind, []).append(f"{np.median(times[:, place]):.0f} | {ratio:.2f}")
        exact = cases["float32"](device.images)
        for kind, columns in rows.items():
            apart = np.linalg.norm(cases[kind](device.images) - exact) / np.linalg.norm(exact)
            print(f"| {model} | {kind} | {' | '.join(columns)} | {apart:.4f} |", flush=True)


if __name__ == "__main__":
    main()
