"""The coherent method's decision as an ONNX graph: features and four numbers of memory in, and out again.

The same steps as ``btfl.methods.coherent``, in float64; the memory is a ``Scan`` over the samples of a batch. There is
no integral to approximate.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.errors import InputError
from btfl.export.nodes import Nodes, double, log_probabilities, logits, model
from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings


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
    z = g("Cast", "features", to=TensorProto.DOUBLE)
    probabilities = g("Exp", log_probabilities(g, z, heads[:3]))
    limit = g.constant(adapter.settings.log_tau_limit)
    if adapter.compares_means:
        own_and_everyones = logits(g, z, heads[:1:-1])
        sums = g("ReduceLogSumExp", own_and_everyones, g.constant([2], np.int64), keepdims=0)
        ratio = g("MatMul", sums, g.constant([[1.0], [-1.0]]))
    else:
        generative = g("Gather", probabilities, g.constant(2, np.int64), axis=1)
        ratio = g("Log", g("MatMul", generative, g.constant(adapter.share_ratios[:, None])))
    log_tau = g("Clip", ratio, g("Neg", limit), limit)
    _memory(g, log_tau, adapter.settings)

    e = g("Unsqueeze", "e", g.constant([1], np.int64))
    weights = g("Concat", g("Sub", g.constant(1.0), e), g("Mul", e, g.constant(adapter.global_weights)), axis=1)
    mixed = g("Mul", g("Unsqueeze", weights, g.constant([2], np.int64)), probabilities)
    g("ReduceSum", mixed, g.constant([1], np.int64), keepdims=0, output="probabilities")
    return model(g, bundle, state_size=4, more=[double("all_external", "batch")])


def _memory(g: Nodes, log_tau: str, settings: CoherentSettings) -> None:
    """Return ``e`` and ``all_external`` (n,) each, and ``new_state`` (4,)."""
    body = Nodes("memory")
    one, fade = body.constant([1.0]), body.constant([settings.forgetting])
    kept, renewed = body.constant([1.0 - settings.change]), body.constant([settings.change / 3])
    internal, mixture, a, b = (body("Gather", "before", body.constant([n], np.int64), axis=0) for n in range(4))
    tau = body("Exp", "log_tau")
    evidence = body("Add", a, body("Mul", b, tau))
    share = body("Div", a, evidence)
    external = body("Sub", body("Sub", one, internal), mixture)
    as_before = body("Concat", internal, mixture, external, axis=0)
    likely = body("Concat", tau, body("Div", evidence, body("Add", a, b)), one, axis=0)
    weights = body("Mul", body("Add", body("Mul", kept, as_before), renewed), likely)
    regimes = body("Div", weights, body("ReduceSum", weights, keepdims=1))
    internal, mixture, all_external = (body("Gather", regimes, body.constant([n], np.int64), axis=0) for n in range(3))
    body("Add", all_external, body("Mul", mixture, share), output="e_now")
    body("Identity", all_external, output="all_external_now")
    counted = [
        body("Add", one, body("Add", body("Mul", fade, body("Sub", count, one)), new))
        for count, new in ((a, share), (b, body("Sub", one, share)))
    ]
    body("Concat", internal, mixture, *counted, axis=0, output="after")
    inputs = [double("before", 4), double("log_tau", 1)]
    outputs = [double("after", 4), double("e_now", 1), double("all_external_now", 1)]
    graph = helper.make_graph(body.nodes, "memory", inputs, outputs)
    columns = ["e_column", "all_external_column"]
    g.nodes.append(helper.make_node("Scan", ["state", log_tau], ["new_state", *columns], body=graph, num_scan_inputs=1))
    for column in columns:
        g("Squeeze", column, g.constant([1], np.int64), output=column.removesuffix("_column"))
