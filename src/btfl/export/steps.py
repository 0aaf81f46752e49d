"""The steps of BTFL's decision as nodes of an ONNX graph, in float64.

The same steps as ``btfl.methods.btfl``, and e on the same grid (``methods/btfl/weight.py``). With small networks most
of what a graph costs is the number of its nodes, so that steps which are linear are written as one product. The memory
of a batch is a ``Loop`` over its prunes, so that an answer does not depend on how a stream is cut; a sample alone takes
the same step without one.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import THRESHOLD
from btfl.export.nodes import Nodes, column, mixed
from btfl.methods.btfl.settings import BtflSettings
from btfl.methods.btfl.weight import Grid

Floats = NDArray[np.float64]
COLUMNS = 6  # of what is found in a sample: log tau, two excesses of entropy, of each likelihood its exponent, and 1
TAU, EXCESS, EXPONENT, ONE = 0, slice(1, 3), slice(3, 5), 5
_NOTHING = -1000.0  # its exponential is 0
_ROUNDING = 1e-9  # of a + b
_AHEAD = 64  # samples whose memory is summed up at once: more would be summed up in vain when a prune comes first


class Steps:
    """The decision's steps, on (n, 6) columns: log tau, two excesses of entropy, two exponents of u, and 1.

    What is found in a sample is a sum: ``likelihoods`` have log tau, minus the mean entropies, log q and -log q, and 1;
    ``entropies`` have 0, the entropies, log u - log d, and 0. So the first three of their sum say whether it is an
    event, and the exponential of the one times the other adds up to log tau_hat, once ``most`` has limited log u and
    made nothing of the other four.
    """

    def __init__(self, bundle: ClientBundle, settings: BtflSettings) -> None:
        self.settings, self.classes = settings, bundle.classes
        self.grid = Grid(settings.prune_above, single=settings.precision == "single")
        self.longest = settings.prune_above
        if math.isclose(settings.prune_to + 2.0, self.longest):  # as much as a prune leaves, give or take rounding:
            self.longest += _ROUNDING  # only an event may bring the next
        means = np.maximum(bundle.mean_entropies, settings.entropy_floor)
        everyone = bundle.global_likelihood
        if settings.global_from == "others":
            everyone = everyone.without(bundle.local_likelihood)
        (local_offset, local), (offset, others) = (
            one.log_odds(settings.smoothing) for one in (bundle.local_likelihood, everyone)
        )
        nothing = np.zeros_like(local)
        self.odds = np.stack([local - others, nothing, nothing, local, -others, nothing], axis=1)  # sums are exact
        self.offsets = np.array([local_offset - offset, *-means, local_offset, -offset, 1.0])
        self.of_entropies = np.zeros((2, COLUMNS))  # what entropies with a minus sign are multiplied with
        self.of_entropies[:, EXCESS] = -np.eye(2)
        self.of_nothing = np.zeros(COLUMNS)  # what is added to them
        self.most = np.full(COLUMNS, _NOTHING)
        self.of_nothing[EXPONENT] = -math.log(bundle.dimensions)
        if settings.use_entropy:
            scales = np.array([means[0], settings.global_entropy_scale or means[1]])
            self.of_entropies[:, EXPONENT] = -np.diag(1.0 / scales)
            self.of_nothing[EXPONENT] -= 1.0
        if settings.use_characteristic:
            self.most[EXPONENT] = settings.log_u_limit - math.log(bundle.dimensions)
        self.internal = np.zeros(COLUMNS)
        self.internal[TAU] = 1.0
        if settings.use_entropy:  # three signs must agree: (+, -, +) is internal, (-, +, -) external
            self.internal[EXCESS] = -1.0, 1.0

    def likelihoods(self, g: Nodes, z: str) -> str:
        """Return (n, 6): what the likelihoods of the features' bits add to each column."""
        return g("Gemm", self.bits(g, z), g.constant(self.odds), g.constant(self.offsets[None]))

    def bits(self, g: Nodes, z: str) -> str:
        """Return (n, d): 1 where a feature is above the threshold, and 0 elsewhere."""
        return g("Cast", g("Greater", z, g.constant(THRESHOLD)), to=g.type)

    def alone(self, g: Nodes, flat: str, likelihoods: str) -> None:
        """Decide for one sample."""
        logs = g("LogSoftmax", g("Reshape", flat, g.constant([2, self.classes], np.int64)), axis=-1)
        answers = g("Exp", logs)  # (2, classes), the personal ones first; costs less than another Softmax
        terms = g("Reshape", g("Mul", answers, logs), g.constant([1, 2 * self.classes], np.int64))
        entropies = self.entropies(g, terms)
        signs = self.signs(g, terms, entropies, likelihoods)
        g("Cast", g("MatMul", signs, g.constant(self.event)), to=TensorProto.INT8, output=g.output("event"))
        after = self.remembered(g, self.counted(g, signs))
        g("Reshape", after, g.constant([2], np.int64), output=g.output("new_state"))
        used = after if self.settings.count == "before" else g("Reshape", "state", g.constant([1, 2], np.int64))
        parts = self.parts(g, used, self.shares(g, entropies), likelihoods, alone=True)
        weights = g("Gemm", parts, g.constant(np.outer(self.grid.ones, [-1.0, 1.0])), g.constant([1.0, 0.0]))
        g("Gather", weights, g.constant(1, np.int64), axis=1, output=g.output("e"))
        g("MatMul", weights, answers, output=g.output("probabilities"))

    def many(self, g: Nodes, flat: str, likelihoods: str) -> None:
        """Decide for the samples of a batch."""
        logs = g("LogSoftmax", g("Reshape", flat, g.constant([-1, self.classes], np.int64)), axis=-1)
        logs = g("Reshape", logs, g.constant([-1, 2 * self.classes], np.int64))
        answers = g("Exp", logs)  # (n, 2 x classes)
        terms = g("Mul", answers, logs)
        entropies = self.entropies(g, terms)
        signs = self.signs(g, terms, entropies, likelihoods)
        event = column(g, signs, self.event)
        g("Cast", g("Reshape", event, g.constant([-1], np.int64)), to=TensorProto.INT8, output=g.output("event"))
        used = self.memory(g, g("Relu", g("Gemm", signs, g.constant(self.counts))))
        e = column(g, self.parts(g, used, self.shares(g, entropies), likelihoods, alone=False), self.grid.ones)
        g("Reshape", e, g.constant([-1], np.int64), output=g.output("e"))
        both = np.repeat([[-1.0, 1.0], [1.0, 0.0]], self.classes, axis=1)  # times e, and added: 1 - e and e
        weights = g("Gemm", e, g.constant(both[:1]), g.constant(both[1:]))
        mixed(g, answers, weights, heads=2, classes=self.classes, output=g.output("probabilities"))

    def entropies(self, g: Nodes, terms: str) -> str:
        """Return (n, 6): what entropies add to each column; ``terms`` are p log p of both heads, (n, 2 x classes)."""
        return g("Gemm", terms, self.summing(g), g.constant(self.of_nothing[None]))

    def summing(self, g: Nodes) -> str:
        """Return what adds up terms, (2 x classes, 6)."""
        return g.constant(np.repeat(self.of_entropies, self.classes, axis=0))

    def signs(self, g: Nodes, terms: str, entropies: str, likelihoods: str) -> str:
        """Return (n, 6): -1, 0 or 1 for each column."""
        return g("Sign", g("Add", entropies, likelihoods))

    @property
    def event(self) -> Floats:
        """What signs are multiplied with, (6,), to get +1 or -1 and a fraction, which a cast to int8 drops."""
        return np.asarray(-1.01 / np.abs(self.internal).sum() * self.internal)

    @property
    def counts(self) -> Floats:
        """What signs are multiplied with, (6, 2), to get 1 for an external or internal event, and else 0 or less."""
        agreement = np.stack([-self.internal, self.internal], axis=1)
        agreement[ONE] = 1.0 - np.abs(self.internal).sum()  # whole numbers: only if all agree, more than one less
        return agreement if self.settings.use_history else np.zeros_like(agreement)

    def counted(self, g: Nodes, signs: str) -> str:
        """Return (1, 2): a and b with a sample's event."""
        return g("Max", g("Gemm", signs, g.constant(self.counts), "state"), "state")  # what is no event is no larger

    def remembered(self, g: Nodes, raised: str) -> str:
        """Return (1, 2): a and b after a sample, pruned if they are to be."""
        return self.pruned(g, raised)[1]

    def memory(self, g: Nodes, counts: str) -> str:
        """Return (n, 2): the a and b each sample is judged with; ``new_state`` is what they are afterwards.

        Between two prunes a and b are cumulative sums. So each pass of a ``Loop`` sums up the counts of the next
        samples, one after the other as the library does, and keeps the sums up to the first that is to be pruned.
        """
        begun = g("Reshape", "state", g.constant([1, 2], np.int64))
        samples = g("Shape", counts, start=0, end=1)
        body = self.up_to_a_prune(Nodes("memory", g.dtype), counts, samples)
        last, rows = f"{g.name}_last", f"{g.name}_rows"
        most, go_on, start = g("Squeeze", samples), g.constant(True, np.bool_), g.constant([0], np.int64)
        inputs = [most, go_on, start, begun, g.constant(np.empty((0, 2)))]
        g.nodes.append(helper.make_node("Loop", inputs, [f"{g.name}_end", last, rows], body=body))
        g("Reshape", last, g.constant([2], np.int64), output=g.output("new_state"))
        if self.settings.count == "before":
            return rows
        return g("Slice", g("Concat", begun, rows, axis=0), g.constant([0], np.int64), samples)

    def up_to_a_prune(self, g: Nodes, counts: str, samples: str) -> onnx.GraphProto:
        """Return a pass: from where it starts, the state there and the rows so far to where the next one starts."""
        ones = g.constant([1, 1], np.int64)
        ahead = g("Slice", counts, "start", g("Add", "start", g.constant([_AHEAD], np.int64)))
        sums = g("CumSum", g("Concat", "before", ahead, axis=0), g.constant(0, np.int64))
        is_short, states = self.pruned(g, sums)
        short = g("ReduceSum", g("Cast", is_short, to=TensorProto.INT64), g.constant([0], np.int64), keepdims=0)
        end = g("Add", g("Max", short, ones), ones)  # sums only grow: behind the first that is not short
        kept = g("Slice", states, g.constant([1, 0], np.int64), end)  # and both columns, as it is at least 2
        g("Gather", kept, g.constant([-1], np.int64), axis=0, output="after")
        g("Concat", "rows", kept, axis=0, output="more_rows")
        g("Shape", "more_rows", start=0, end=1, output="end")
        g("Squeeze", g("Less", "end", samples), output="go_on")
        number, start, end_ = (
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name, shape in (("number", []), ("start", [1]), ("end", [1]))
        )
        went_on, go_on = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("went_on", "go_on"))
        inputs = [number, went_on, start, g.floats("before", 1, 2), g.floats("rows", "known", 2)]
        outputs = [go_on, end_, g.floats("after", 1, 2), g.floats("more_rows", "more", 2)]
        return helper.make_graph(g.nodes, "memory", inputs, outputs)

    def pruned(self, g: Nodes, raised: str) -> tuple[str, str]:
        """Return whether the sum of a and b is short enough, and a and b, pruned where it is not; (n, 2) each."""
        total = g("MatMul", raised, g.constant(np.ones((2, 2))))  # twice: what need not be repeated costs less
        scaled = raised if self.settings.prune_to == 1.0 else g("Mul", g.constant(self.settings.prune_to), raised)
        pruned = g("Add", g.constant([[1.0, 1.0]]), g("Div", scaled, total))
        is_short = g("LessOrEqual", total, g.constant([[self.longest] * 2]))
        return is_short, g("Where", is_short, raised, pruned)

    def shares(self, g: Nodes, entropies: str) -> str:
        """Return (n, 6): u / d in two columns, and 0."""
        return g("Exp", g("Min", entropies, g.constant(self.most[None])))

    def parts(self, g: Nodes, used: str, shares: str, likelihoods: str, alone: bool) -> str:
        """Return (n, points): parts that add up to e, the weight of the global head.

        Each is a density times m_hat, 1 / (1 + tau_hat (1 - m) / m). Of a sample ``alone`` log tau_hat is (1, n): with
        another n that branch is never taken, but its shapes must fit all the same.
        """
        if alone:
            log_tau = g("Gemm", shares, likelihoods, transB=1)  # row times row
        else:
            log_tau = column(g, g("Mul", shares, likelihoods), np.ones(COLUMNS))
        limit, odds = self.settings.log_tau_limit, g.constant(self.grid.odds_against[None])
        tau_hat = g("Exp", g("Clip", log_tau, g.constant(-limit), g.constant(limit)))
        return g("Div", self.density(g, used), g("Gemm", tau_hat, odds, g.constant(1.0), transA=int(alone)))

    def density(self, g: Nodes, used: str) -> str:
        """Return (n, points): the Beta density of a and b at each point, as parts of 1."""
        grid = self.grid
        logs = g("Gemm", used, g.constant(np.stack([grid.log_m, grid.log_rest])), g.constant(grid.log_widths))
        return g("Softmax", logs, axis=-1)
