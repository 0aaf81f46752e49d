"""The coherent method's decision as an ONNX graph: features and four numbers of memory in, and out again.

The same steps as ``btfl.methods.coherent``, in float64 unless ``precision`` is single. There is no integral to
approximate. With small networks most of what a graph costs is the number of its nodes, so that steps which are linear
are written as one product, and the memory is a row of ten numbers (``_Step``). The memory of a batch is a ``Scan`` over
its samples; a sample alone takes the same step without one.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.errors import InputError
from btfl.export.nodes import Nodes, alone_or_many, features, logits, mixed, model, nodes_for
from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings

Floats = NDArray[np.float64]
_ROW = 10
_TIMES_TAU = np.array([1, 0, 0, 1, 0, 1, 0, 1, 0, 1.0])
_STATE = 4


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
    g = nodes_for(chosen.precision)
    scores = logits(g, features(g), heads)
    probabilities, step = g("Softmax", scores, axis=-1), _Step(adapter, bundle.classes)
    flat = g("Reshape", probabilities, g.constant([-1, len(heads) * bundle.classes], np.int64))
    factors = _factors(g, adapter, scores, flat)
    answer = g.floats("probabilities", "batch", bundle.classes)
    outputs = [answer, g.floats("e", "batch"), g.floats("all_external", "batch"), g.floats("new_state", _STATE)]
    alone_or_many(
        g,
        probabilities,
        outputs,
        lambda branch: step.alone(branch, factors, probabilities),
        lambda branch: step.many(branch, factors, flat),
    )
    return model(g, bundle, state_size=_STATE, more=[g.floats("all_external", "batch")])


def _factors(g: Nodes, adapter: Coherent, scores: str, flat: str) -> str:
    """Return (n, 10) factors of the memory's row, tau or 1; ``flat`` are the heads' probabilities, (n, all of them)."""
    limit = adapter.settings.log_tau_limit
    if adapter.compares_means:  # the last head has the client's own class means, the one before it everyone's
        of_mean = g.constant(np.outer([0.0, 0.0, -1.0, 1.0], _TIMES_TAU))
        log_tau = g("Gemm", g("ReduceLogSumExp", scores, g.constant([2], np.int64), keepdims=0), of_mean)
        return g("Exp", g("Clip", log_tau, g.constant(-limit), g.constant(limit)))
    heads, classes = len(adapter.heads), len(adapter.share_ratios)
    of_class = np.zeros((heads, classes, _ROW))  # the generative head's probabilities add up to 1
    of_class[2] = np.where(_TIMES_TAU, adapter.share_ratios[:, None], 1.0)
    tau = g("Gemm", flat, g.constant(of_class.reshape(-1, _ROW)))
    return g("Clip", tau, g.constant(math.exp(-limit)), g.constant(math.exp(limit)))


class _Step:
    """What the memory does with a sample, as products of matrices.

    Before a sample the regimes have p = (1 - h) p + h/3. With E = a + b tau and c = a + b they are then, but for their
    sum T, c p_internal tau, c p_external, and a p_mixture + b tau p_mixture, whose first part is external; the sample's
    share of the external count is r = a / E, so that a becomes f a + r + 1 - f, and f a is f (a a + a b tau) / E. So
    the row is two linear forms of the state multiplied (``left`` and ``right``), times the factors tau or 1, over T or
    E:

        internal, external, mixture's external part, its internal part, a/E, b tau/E, aa/E, ab tau/E, ab/E, bb tau/E

    and all that is asked for is linear in it.
    """

    def __init__(self, adapter: Coherent, classes: int) -> None:
        row, settings, self.classes = np.eye(_ROW), adapter.settings, classes
        internal, mixture, certain = row[0], row[2] + row[3], row[4] + row[5]
        added, kept = 1.0 - settings.forgetting, settings.forgetting
        a = kept * (row[6] + row[7]) + row[4] + added * certain
        b = kept * (row[8] + row[9]) + row[5] + added * certain
        self.external, self.e = row[1], row[1] + row[2]
        self.state = np.stack([internal, mixture, a, b, certain], axis=1)
        self.weights = np.zeros((_ROW, len(adapter.heads)))
        self.weights[:, 0] = row[0] + row[3]
        self.weights[:, 1:3] = np.outer(self.e, adapter.global_weights)
        self.left, self.right = _forms(settings.change)
        self.over = np.zeros((_ROW, _ROW))
        self.over[:4, :4] = self.over[4:6, 4:] = 1.0

    def alone(self, g: Nodes, factors: str, probabilities: str) -> None:
        """Take in one sample."""
        left, right = self.of_state(g, self.left, self.right)
        row = self.normalised(g, g("Mul", g("Mul", left, right), factors))
        asked = np.column_stack([self.e, self.external, self.state[:, :_STATE], self.weights])
        sizes = [1, 1, _STATE, self.weights.shape[1]]
        flat = g("Reshape", g("Gemm", row, g.constant(asked)), g.constant([sum(sizes)], np.int64))
        parts = [g.output("e"), g.output("all_external"), g.output("new_state"), f"{g.name}_weights"]
        g.nodes.append(helper.make_node("Split", [flat, g.constant(sizes, np.int64)], parts, axis=0))
        g("MatMul", parts[-1], probabilities, output=g.output("probabilities"))

    @staticmethod
    def of_state(g: Nodes, *forms: Floats) -> list[str]:
        """Return (1, 10) for each form: the state and a 1 times it. Products of vectors, (4,), would cost more."""
        state = g("Reshape", "state", g.constant([1, _STATE], np.int64))
        return [g("Gemm", state, g.constant(form[:_STATE]), g.constant(form[_STATE:])) for form in forms]

    def many(self, g: Nodes, factors: str, flat: str) -> None:
        """Take in the samples of a batch, one after the other; the row of one is what the next begins with."""
        body = Nodes("memory", g.dtype)
        left, right = (body("Gemm", "before", form) for form in ("left", body.constant(self.state @ self.right)))
        self.normalised(body, body("Mul", left, right, output="times"), output="after")
        before, form, after, times = (
            g.floats(name, size, _ROW) for name, size in (("before", 1), ("left", _ROW), ("after", 1), ("times", 1))
        )
        graph = helper.make_graph(body.nodes, "memory", [before, form], [after, times])
        (begun,) = self.of_state(g, np.linalg.pinv(self.state))  # a row that the state follows from
        each = g("Unsqueeze", factors, g.constant([1], np.int64))
        lefts = g("Mul", each, g.constant(self.state @ self.left))  # factors of all at once: one node less a step
        last, found = f"{g.name}_last", f"{g.name}_times"
        g.nodes.append(helper.make_node("Scan", [begun, lefts], [last, found], body=graph, num_scan_inputs=1))
        new_state = g("Gemm", last, g.constant(self.state[:, :_STATE]))
        g("Reshape", new_state, g.constant([_STATE], np.int64), output=g.output("new_state"))
        rows = self.normalised(g, g("Reshape", found, g.constant([-1, _ROW], np.int64)))
        asked = g("MatMul", rows, g.constant(np.column_stack([self.e, self.external])))
        for place, name in enumerate(("e", "all_external")):
            g("Gather", asked, g.constant(place, np.int64), axis=1, output=g.output(name))
        heads, answer = self.weights.shape[1], g.output("probabilities")
        weights = g("MatMul", rows, g.constant(np.repeat(self.weights, self.classes, axis=1)))
        mixed(g, flat, weights, heads, self.classes, output=answer)

    def normalised(self, g: Nodes, times: str, output: str | None = None) -> str:
        """Return rows over their T and E."""
        return g("Div", times, g("Gemm", times, g.constant(self.over)), output=output)


def _forms(change: float) -> tuple[Floats, Floats]:
    """Return the two (5, 10) matrices whose products with the state and a 1 are multiplied with one another."""
    internal, mixture, a, b, one = np.eye(_STATE + 1)
    regimes = internal, one - internal - mixture, mixture
    p_internal, p_external, p_mixture = ((1.0 - change) * p + change / 3 * one for p in regimes)
    left = [p_internal, p_external, p_mixture, p_mixture, one, one, a, a, a, b]
    right = [a + b, a + b, a, b, a, b, a, b, b, b]
    return np.stack(left, axis=1), np.stack(right, axis=1)
