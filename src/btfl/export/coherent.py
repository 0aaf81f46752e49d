"""The coherent method's decision as an ONNX graph: features and four numbers of memory in, and out again.

The same steps as ``btfl.methods.coherent``, in float64; the memory is a ``Scan`` over the samples of a batch. There is
no integral to approximate. With small networks most of what a graph costs is the number of its nodes, so that steps
which are linear are written as one product, and the memory is a row of six numbers (``_memory``).
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.errors import InputError
from btfl.export.nodes import Nodes, as_doubles, double, logits, mixed, model
from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings

# The memory's row: the probabilities of internal, mixture and external, what a and b are above 1, and 1 itself.
_TIMES_TAU = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
_FROM_STATE = [[1, 0, -1, 0, 0, 0], [0, 1, -1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]]
_BEGINNING = [0, 0, 1, -1, -1, 1]
_TO_STATE = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 1]]
_EVIDENCE = [[0] * 6, [0] * 6, [0] * 6, [1, 0, 1, 1, 1, 0], [1, 0, 1, 1, 1, 0], [0, 1, 0, 0, 0, 1]]  # E c E E E c
_TOTALS = [*[[1, 1, 1, 0, 0, 0]] * 3, [0] * 6, [0] * 6, [0, 0, 0, 1, 1, 1]]


def coherent_graph(bundle: ClientBundle, settings: CoherentSettings | None = None) -> onnx.ModelProto:
    """Return a model with inputs ``features`` (n, d) and ``state`` (4,): ``internal``, ``mixture``, ``a`` and ``b``.

    The state begins as (1/3, 1/3, 1, 1).
    """
    adapter = Coherent(bundle, settings)
    chosen = adapter.settings
    if (chosen.evidence, chosen.memory, chosen.weight) != ("label", "regimes", "predictive"):
        raise InputError("only the method's own evidence, memory and weight can be exported, not those of an ablation")
    heads = [head for head in adapter.heads if isinstance(head, LinearHead)]
    if len(heads) < len(adapter.heads):
        raise InputError(f"density = {chosen.density!r} has scores that are not linear, which cannot be exported")
    g = Nodes("decision")
    scores = logits(g, as_doubles(g), heads)
    probabilities = g("Softmax", scores, axis=-1)
    factors = (
        _compared_means(g, scores, adapter) if adapter.compares_means else _label_shares(g, probabilities, adapter)
    )
    e = _memory(g, factors, chosen)
    local, everyone = np.eye(len(heads))[0], np.zeros(len(heads))
    everyone[1:3] = adapter.global_weights
    mixed(g, probabilities, e, local, everyone)
    return model(g, bundle, state_size=4, more=[double("all_external", "batch")])


def _label_shares(g: Nodes, probabilities: str, adapter: Coherent) -> str:
    """Return (n, 6) factors of the memory's row, from the generative head's answer: tau in two places, else 1."""
    heads, classes = len(adapter.heads), len(adapter.share_ratios)
    ratios = np.zeros((heads, classes))
    ratios[2] = adapter.share_ratios
    flat = g("Reshape", probabilities, g.constant([0, heads * classes], np.int64))
    tau = g("Gemm", flat, g.constant(np.outer(ratios.ravel(), _TIMES_TAU)), g.constant(1.0 - _TIMES_TAU))
    limit = adapter.settings.log_tau_limit
    return g("Clip", tau, g.constant(math.exp(-limit)), g.constant(math.exp(limit)))


def _compared_means(g: Nodes, scores: str, adapter: Coherent) -> str:
    """Return the same factors where the client's own class means, the last head, are compared with everyone's."""
    sums = g("ReduceLogSumExp", scores, g.constant([2], np.int64), keepdims=0)
    log_tau = g("MatMul", sums, g.constant(np.outer([0.0, 0.0, -1.0, 1.0], _TIMES_TAU)))
    limit = adapter.settings.log_tau_limit
    return g("Exp", g("Clip", log_tau, g.constant(-limit), g.constant(limit)))


def _memory(g: Nodes, factors: str, settings: CoherentSettings) -> str:
    """Return e, (n, 1, 1); ``e`` and ``all_external`` (n,) and ``new_state`` (4,) are results of the graph.

    Before a sample the regimes have p = (1 - h) p + h/3. With E = a + b tau and c = a + b they are then, but for their
    sum, p_internal tau / E, p_mixture / c and p_external / E; the sample's share of the external count is a / E, of the
    internal one b tau / E. So a step is: a product that makes p, a, b and c of the row, times the factors, a product
    that makes what to divide by, and the same for the sum.
    """
    row = g("Gemm", g("Unsqueeze", "state", g.constant([0], np.int64)), g.constant(_FROM_STATE), g.constant(_BEGINNING))
    body = Nodes("memory")
    times = body("Mul", body("MatMul", "before", body.constant(_before_sample(settings.change))), "factors")
    shares = body("Div", times, body("MatMul", times, body.constant(_EVIDENCE)))
    body("Div", shares, body("MatMul", shares, body.constant(_TOTALS)), output="sample")
    kept = np.diag([0.0, 0.0, 0.0, settings.forgetting, settings.forgetting, 0.0])
    body("Gemm", "before", body.constant(kept), "sample", output="after")
    inputs, outputs = [double("before", 1, 6), double("factors", 6)], [double("after", 1, 6), double("sample", 1, 6)]
    graph = helper.make_graph(body.nodes, "memory", inputs, outputs)
    g.nodes.append(helper.make_node("Scan", [row, factors], ["last", "samples"], body=graph, num_scan_inputs=1))
    g("Squeeze", g("MatMul", "last", g.constant(_TO_STATE)), g.constant([0], np.int64), output="new_state")

    columns = ["_", "mixture", "external", "share", "__", "___"]
    g.nodes.append(helper.make_node("Split", ["samples"], columns, axis=2, num_outputs=6))
    e = g("Add", "external", g("Mul", "mixture", "share"))
    for column, output in ((e, "e"), ("external", "all_external")):
        g("Reshape", column, g.constant([-1], np.int64), output=output)
    return e


def _before_sample(change: float) -> list[list[float]]:
    """Return what makes p of the three regimes, a, b and c of a row."""
    stays, renewed = 1.0 - change, change / 3
    return [
        [stays, 0, 0, 0, 0, 0],
        [0, stays, 0, 0, 0, 0],
        [0, 0, stays, 0, 0, 0],
        [0, 0, 0, 1, 0, 1],
        [0, 0, 0, 0, 1, 1],
        [renewed, renewed, renewed, 1, 1, 2],
    ]
