"""The decision as an ONNX graph: features and the state (a, b) in; probabilities, e, events and the new state out.

The same steps as ``btfl.methods.btfl``, in float64, and e on the same grid (``methods/btfl/weight.py``). With small
networks most of what a graph costs is the number of its nodes, so that steps which are linear are written as one
product. The memory of a batch is a ``Scan`` over its samples, so that an answer does not depend on how a stream is cut;
a sample alone takes the same step without one.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import THRESHOLD
from btfl.errors import InputError
from btfl.export.nodes import Nodes, alone_or_many, as_doubles, double, flat_logits, mixed, model
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.btfl.weight import Grid

_COLUMNS = 5  # of what is found in a sample: log tau, two excesses of entropy, and of each likelihood its exponent
_TAU, _EXCESS, _EXPONENT = 0, slice(1, 3), slice(3, 5)


def decision_graph(bundle: ClientBundle, settings: BtflSettings | None = None) -> onnx.ModelProto:
    """Return a model with inputs ``features`` (n, d) and ``state`` (2,), for a client and the settings."""
    settings = settings or BtflSettings()
    _check(settings)
    g, decision = Nodes("decision"), _Decision(bundle, settings)
    z = as_doubles(g)
    scores, likelihoods = flat_logits(g, z, (bundle.personal_head, bundle.global_head)), decision.likelihoods(g, z)
    event = helper.make_tensor_value_info("event", TensorProto.INT8, ["batch"])
    answer = double("probabilities", "batch", bundle.classes)
    alone_or_many(
        g,
        scores,
        [answer, double("e", "batch"), event, double("new_state", 2)],
        lambda branch: decision.alone(branch, scores, likelihoods),
        lambda branch: decision.many(branch, scores, likelihoods),
    )
    return model(g, bundle, state_size=2, more=[event])


def _check(settings: BtflSettings) -> None:
    for knob, only in (
        ("batch", "sample"),
        ("squash", None),
        ("expectation", "exact"),
        ("mix", "probabilities"),
    ):
        value = getattr(settings, knob)
        if value != only:
            raise InputError(
                f"{knob} = {value!r} cannot be exported, only {only!r}: the graph holds the paper's method. "
                "Export the extractor alone, and let btfl's core do the rest with any settings"
            )


class _Decision:
    """The decision's steps, on (5,) or (n, 5) columns: log tau, two excesses of entropy, two exponents u.

    What is found in a sample is a sum: ``likelihoods`` have log tau, minus the mean entropies, and log q; ``entropies``
    have 0, the entropies, and log u. So the first three of their sum say whether it is an event, and the exponential of
    the one times the other has u log q.
    """

    def __init__(self, bundle: ClientBundle, settings: BtflSettings) -> None:
        self.settings, self.classes = settings, bundle.classes
        means = np.maximum(bundle.mean_entropies, settings.entropy_floor)
        scales = np.array([means[0], settings.global_entropy_scale or means[1]])
        everyone = bundle.global_likelihood
        if settings.global_from == "others":
            everyone = everyone.without(bundle.local_likelihood)
        (local_offset, local), (offset, others) = (
            one.log_odds(settings.smoothing) for one in (bundle.local_likelihood, everyone)
        )
        nothing = np.zeros_like(local)
        self.odds = np.stack([local - others, nothing, nothing, local, others], axis=1)  # exact sums, as in the library
        self.offsets = np.array([local_offset - offset, *-means, local_offset, offset])
        self.of_entropies = np.zeros((2, _COLUMNS))  # of entropies with a minus sign
        self.of_entropies[:, _EXCESS], self.of_entropies[:, _EXPONENT] = -np.eye(2), -np.diag(1.0 / scales)
        self.largest = settings.log_u_limit + 1.0
        self.may_be_larger = math.log(bundle.classes) / scales.min() > self.largest
        self.ratio = np.zeros((_COLUMNS, 1))
        if settings.use_characteristic:  # log u is an exponent less 1
            scale = math.exp(-1.0) if settings.use_entropy else 1.0
            self.ratio[_EXPONENT, 0] = scale / bundle.dimensions, -scale / bundle.dimensions
        self.grid = Grid(settings.prune_above)

    def likelihoods(self, g: Nodes, z: str) -> str:
        """Return (n, 5): what the likelihoods of the features' bits add to each column."""
        bits = g("Cast", g("Greater", z, g.constant(THRESHOLD)), to=TensorProto.DOUBLE)
        return g("Gemm", bits, g.constant(self.odds), g.constant(self.offsets))

    def alone(self, g: Nodes, flat: str, likelihoods: str) -> None:
        """Decide for one sample."""
        scores = g("Reshape", flat, g.constant([2, self.classes], np.int64))
        answers, entropies = self.heads(g, scores, axis=1)
        counts = self.events(g, entropies, likelihoods)
        after = self.pruned(g, self.raised(g, "state", counts))
        g("Reshape", after, g.constant([2], np.int64), output=g.output("new_state"))
        used = after if self.settings.count == "before" else g("Reshape", "state", g.constant([1, 2], np.int64))
        weights = self.weights(g, used, self.rectified(g, entropies, likelihoods))
        g("MatMul", weights, answers, output=g.output("probabilities"))

    def many(self, g: Nodes, flat: str, likelihoods: str) -> None:
        """Decide for the samples of a batch."""
        scores = g("Reshape", flat, g.constant([0, 2, self.classes], np.int64))
        answers, entropies = self.heads(g, scores, axis=2)
        used = self.memory(g, self.events(g, entropies, likelihoods))
        weights = self.weights(g, used, self.rectified(g, entropies, likelihoods))
        mixed(g, answers, weights, output=g.output("probabilities"))

    def heads(self, g: Nodes, scores: str, axis: int) -> tuple[str, str]:
        """Return the probabilities of both heads, personal first, and what entropies add to each column."""
        answers = g("Softmax", scores, axis=-1)
        products = g("Mul", answers, g("LogSoftmax", scores, axis=-1))
        entropies = g("ReduceSum", products, g.constant([axis], np.int64), keepdims=0)
        return answers, g("MatMul", entropies, g.constant(self.of_entropies))

    def events(self, g: Nodes, entropies: str, likelihoods: str) -> str:
        """Return (n, 2) counts of external and internal events; ``event`` is +1, -1 or 0 for each sample."""
        internal = np.zeros(_COLUMNS)
        internal[_TAU] = 1.0
        if self.settings.use_entropy:  # three signs must agree: (+, -, +) is internal, (-, +, -) external
            internal[_EXCESS] = -1.0, 1.0
        signs = g("Sign", g("Add", entropies, likelihoods))
        least = 1.0 - np.abs(internal).sum()  # whole numbers: only if all agree, more than one less than all
        agreement = np.stack([-internal, internal], axis=1)
        counts = g("Relu", g("Gemm", signs, g.constant(agreement), g.constant([least] * 2)))
        difference = g("MatMul", counts, g.constant([1.0, -1.0]))
        g("Cast", difference, to=TensorProto.INT8, output=g.output("event"))
        return counts

    def memory(self, g: Nodes, counts: str) -> str:
        """Return (n, 2): the a and b each sample is judged with; ``new_state`` is what they are afterwards."""
        body, before = Nodes("memory"), self.settings.count == "before"
        raised = self.raised(body, "before", "count", output="raised" if before else None)
        self.pruned(body, raised, output="after")
        seen = raised if before else body("Identity", "before", output="judged_with")
        pair = [double("before", 2), double("count", 2)]
        graph = helper.make_graph(body.nodes, "memory", pair, [double("after", 2), double(seen, 2)])
        outputs = [g.output("new_state"), f"{g.name}_seen"]
        g.nodes.append(helper.make_node("Scan", ["state", counts], outputs, body=graph, num_scan_inputs=1))
        return self.pruned(g, outputs[1], axes=g.constant([1], np.int64)) if before else outputs[1]

    def raised(self, g: Nodes, before: str, count: str, output: str | None = None) -> str:
        """Return a and b with the events of a sample."""
        return g("Add", before, count if self.settings.use_history else g("Sub", count, count), output=output)

    def pruned(self, g: Nodes, raised: str, axes: str = "", output: str | None = None) -> str:
        """Return a and b, pruned where their sum is too large."""
        total = g("ReduceSum", raised, axes, keepdims=1)
        scaled = raised if self.settings.prune_to == 1.0 else g("Mul", g.constant(self.settings.prune_to), raised)
        pruned = g("Add", g.constant(1.0), g("Div", scaled, total))
        return g("Where", g("Greater", total, g.constant(self.settings.prune_above)), pruned, raised, output=output)

    def rectified(self, g: Nodes, entropies: str, likelihoods: str) -> str:
        """Return (n, 1) log tau_hat."""
        limit = self.settings.log_tau_limit
        if self.settings.use_entropy:
            if self.may_be_larger:
                entropies = g("Clip", entropies, "", g.constant(self.largest))
            likelihoods = g("Mul", g("Exp", entropies), likelihoods)
        return g("Clip", g("MatMul", likelihoods, g.constant(self.ratio)), g.constant(-limit), g.constant(limit))

    def weights(self, g: Nodes, used: str, log_tau_hat: str) -> str:
        """Return (n, 2) weights of the personal and the global head; ``e``, (n,), are the latter."""
        grid = self.grid
        log_density = g("Gemm", used, g.constant(np.stack([grid.log_m, grid.log_rest])), g.constant(grid.log_widths))
        odds_against = g("Gemm", g("Exp", log_tau_hat), g.constant(grid.odds_against[None]), g.constant(1.0))  # and 1
        parts = g("Div", g("Softmax", log_density, axis=-1), odds_against)
        g("MatMul", parts, g.constant(grid.ones), output=g.output("e"))
        return g("Gemm", parts, g.constant(np.outer(grid.ones, [-1.0, 1.0])), g.constant([1.0, 0.0]))
