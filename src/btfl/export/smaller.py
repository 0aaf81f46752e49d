"""An extractor with smaller weights: half or a quarter of the bytes, and the same graph in single precision.

Weights are stored as float16, or as int8 with a scale for each channel, and turned into float32 by the graph itself,
which onnxruntime does once, when the file is loaded. So a file is smaller to send and to store; it computes as before.
No sample is needed for it, unlike for arithmetic in int8, whose ranges would have to be measured on a client's images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from btfl.errors import UnknownNameError

StoredAs = Literal["float32", "float16", "int8"]
_SMALLEST = 256  # numbers: below it a scale for each channel would cost more than it saves


def with_weights(model: onnx.ModelProto, stored: StoredAs) -> onnx.ModelProto:
    """Return a graph whose float32 weights (matrices and kernels of 256 numbers or more) are stored as asked."""
    if stored not in get_args(StoredAs):
        raise UnknownNameError("kind of weights", stored, get_args(StoredAs))
    smaller = onnx.ModelProto()
    smaller.CopyFrom(model)
    if stored == "float32":
        return smaller
    graph, nodes, kept = smaller.graph, list[onnx.NodeProto](), list[onnx.TensorProto]()
    for tensor in graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.dims) < 2 or np.prod(tensor.dims) < _SMALLEST:
            kept.append(tensor)
            continue
        weights = numpy_helper.to_array(tensor)
        made, node = _as_float16(tensor.name, weights) if stored == "float16" else _as_int8(tensor.name, weights)
        kept.extend(made)
        nodes.append(node)
    everything = [*nodes, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(everything)
    return smaller


Made = tuple[Sequence[onnx.TensorProto], onnx.NodeProto]


def _as_float16(name: str, weights: NDArray[Any]) -> Made:
    largest = np.finfo(np.float16).max
    half = np.clip(weights, -largest, largest).astype(np.float16)
    stored = f"{name}_float16"
    return [numpy_helper.from_array(half, stored)], helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT)


def _as_int8(name: str, weights: NDArray[Any]) -> Made:
    """Store with a scale for each channel of the first axis or of the last: whichever is nearer to the weights."""
    found = [_rounded(weights, axis) for axis in (0, weights.ndim - 1)]
    axis, scales, whole, _ = min(found, key=lambda each: each[3])
    stored = [numpy_helper.from_array(whole, f"{name}_int8"), numpy_helper.from_array(scales, f"{name}_scale")]
    node = helper.make_node("DequantizeLinear", [each.name for each in stored], [name], axis=axis)
    return stored, node


def _rounded(weights: NDArray[Any], axis: int) -> tuple[int, NDArray[np.float32], NDArray[np.int8], float]:
    """Return the axis, the scale of each of its channels, the rounded weights, and the sum of squared errors."""
    others = tuple(place for place in range(weights.ndim) if place != axis)
    largest = np.abs(weights).max(axis=others)
    scales = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    along = scales.reshape([-1 if place == axis else 1 for place in range(weights.ndim)])
    whole = np.clip(np.rint(weights / along), -127, 127).astype(np.int8)
    return axis, scales, whole, float(((whole * along - weights) ** 2).sum())
