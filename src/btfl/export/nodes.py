"""What both decision graphs are built with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.core.products import Precision

OPSET, IR_VERSION = 20, 10


class Nodes:
    """Nodes in order; calling it adds one and returns the name of its result.

    Parameters
    ----------
    name : begins every result's name: those of a body may not hide those of the graph around it
    dtype : of the graph's numbers
    """

    def __init__(self, name: str, dtype: type[np.floating[Any]] = np.float64) -> None:
        self.name, self.dtype = name, dtype
        self.nodes: list[onnx.NodeProto] = []

    def __call__(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node."""
        output = output or f"{self.name}_{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def output(self, name: str) -> str:
        """Return what a branch calls a result of the graph."""
        return f"{self.name}_{name}"

    def constant(self, value: Any, dtype: type | None = None) -> str:
        """Add a constant, of the graph's own type if no other is named."""
        return self("Constant", value=numpy_helper.from_array(np.array(value, dtype=dtype or self.dtype)))

    @property
    def type(self) -> int:
        """The graph's type of numbers, as ONNX counts them."""
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))

    def floats(self, name: str, *shape: int | str) -> onnx.ValueInfoProto:
        """Describe an input or output of such numbers."""
        return helper.make_tensor_value_info(name, self.type, list(shape))


def nodes_for(precision: Precision) -> Nodes:
    """Return where a decision's nodes go: in double precision, unless single is asked for."""
    return Nodes("decision", np.float32 if precision == "single" else np.float64)


def features(g: Nodes) -> str:
    """Return the input ``features``, as numbers of the graph's type."""
    return "features" if g.dtype is np.float32 else g("Cast", "features", to=g.type)


def flat_logits(g: Nodes, z: str, heads: Sequence[LinearHead]) -> str:
    """Return (n, heads x classes) logits."""
    weights = np.concatenate([head.weight for head in heads]).T
    bias = np.concatenate([np.zeros(head.classes) if head.bias is None else head.bias for head in heads])
    return g("Gemm", z, g.constant(weights), g.constant(bias))


def logits(g: Nodes, z: str, heads: Sequence[LinearHead]) -> str:
    """Return (n, heads, classes) logits."""
    flat = flat_logits(g, z, heads)
    return g("Reshape", flat, g.constant([0, len(heads), heads[0].classes], np.int64))


def alone_or_many(
    g: Nodes,
    batch: str,
    outputs: Sequence[onnx.ValueInfoProto],
    alone: Callable[[Nodes], None],
    many: Callable[[Nodes], None],
) -> None:
    """Add an ``If``: a sample alone is decided without a ``Scan``, which would cost as much as the decision.

    Where a session is told that the batch is one, onnxruntime leaves the other branch and the question out.

    Parameters
    ----------
    batch : an array with a row for each sample
    outputs : results of the graph; a branch calls each by ``Nodes.output``
    alone, many : add the nodes of a branch
    """
    branches = {}
    for name, fill in (("alone", alone), ("many", many)):
        branch = Nodes(name, g.dtype)
        fill(branch)
        told = [onnx.ValueInfoProto.FromString(output.SerializeToString()) for output in outputs]
        for output in told:
            output.name = branch.output(output.name)
        branches[name] = helper.make_graph(branch.nodes, name, [], told)
    is_one = g("Equal", g("Shape", batch, start=0, end=1), g.constant([1], np.int64))
    names = [output.name for output in outputs]
    g.nodes.append(helper.make_node("If", [is_one], names, then_branch=branches["alone"], else_branch=branches["many"]))


def column(g: Nodes, rows: str, by: NDArray[np.float64]) -> str:
    """Return (n, 1): each row times a vector, as a matrix: onnxruntime multiplies rows with a vector one by one."""
    return g("MatMul", rows, g.constant(by[:, None]))


def mixed(g: Nodes, answers: str, weights: str, heads: int, classes: int, output: str) -> str:
    """Return (n, classes): the heads' answers under their weights, as one product for all samples.

    Parameters
    ----------
    answers : (n, heads x classes)
    weights : (n, heads x classes), a head's weight for each of its classes
    """
    over_heads = np.tile(np.eye(classes), (heads, 1))
    return g("MatMul", g("Mul", answers, weights), g.constant(over_heads), output=output)


def model(g: Nodes, bundle: ClientBundle, state_size: int, more: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """Make a model of the nodes: features and state in; probabilities, e, more, and the new state out."""
    features_ = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", bundle.dimensions])
    outputs = [g.floats("probabilities", "batch", bundle.classes), g.floats("e", "batch"), *more]
    inputs = [features_, g.floats("state", state_size)]
    graph = helper.make_graph(g.nodes, "btfl", inputs, [*outputs, g.floats("new_state", state_size)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
