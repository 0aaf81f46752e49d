"""The decision as an ONNX graph: features and the state (a, b) in; probabilities, e, events and the new state out.

The same steps as ``btfl.methods.btfl``, in float64. Two are written in another way, since ONNX lacks the functions:

- The memory is a ``Scan`` over the samples of a batch, so that an answer does not depend on how a stream is cut; a
  sample alone takes the same step without one.
- e = E[m_hat] is a trapezoid sum over x on a fixed grid, with logit(m) = t = 6 sinh(x/6), which needs half as many
  nodes in the tails. In t the Beta density is exp(a log m + b log(1-m)) but for a constant, so a softmax over the grid
  gives its weights, normalised; and m_hat = sigmoid(t - log tau_hat). Both are analytic: the error falls exponentially
  with the step (below 1e-12 for the a and b a memory can hold).
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import THRESHOLD
from btfl.errors import InputError
from btfl.export.nodes import Nodes, alone_or_many, as_doubles, double, logits, mixed, model
from btfl.methods.btfl.settings import BtflSettings

_REACH = 32.0  # of the grid in t: beyond it a Beta(1, b) has b exp(-32) of its mass
_STRETCH = 6.0  # t = 6 sinh(x/6): beyond t = 6 the nodes lie further and further apart


def decision_graph(bundle: ClientBundle, settings: BtflSettings | None = None) -> onnx.ModelProto:
    """Return a model with inputs ``features`` (n, d) and ``state`` (2,), for a client and the settings."""
    settings = settings or BtflSettings()
    _check(settings)
    g = Nodes("decision")
    z = as_doubles(g)
    answers, certainty = _heads(g, z, bundle)
    log_q = _likelihoods(g, z, bundle, settings)
    means = np.maximum(bundle.mean_entropies, settings.entropy_floor)

    used = _memory(g, _events(g, log_q, certainty, means, settings), settings)
    log_tau_hat = _rectified(g, log_q, certainty, means, bundle.dimensions, settings)
    mixed(g, answers, _expectation(g, used, log_tau_hat, settings), output="probabilities")
    return _model(g, bundle)


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


def _heads(g: Nodes, z: str, bundle: ClientBundle) -> tuple[str, str]:
    """Return (n, 2, classes) probabilities, personal first, and (n, 2) entropies with a minus sign."""
    scores = logits(g, z, (bundle.personal_head, bundle.global_head))
    answers = g("Softmax", scores, axis=-1)
    products = g("Mul", answers, g("LogSoftmax", scores, axis=-1))
    return answers, g("ReduceSum", products, g.constant([2], np.int64), keepdims=0)


def _likelihoods(g: Nodes, z: str, bundle: ClientBundle, settings: BtflSettings) -> str:
    """Return (n, 2) log-likelihoods, local first; exact sums, as in the library."""
    everyone = bundle.global_likelihood
    if settings.global_from == "others":
        everyone = everyone.without(bundle.local_likelihood)
    pairs = [one.log_odds(settings.smoothing) for one in (bundle.local_likelihood, everyone)]
    bits = g("Cast", g("Greater", z, g.constant(THRESHOLD)), to=TensorProto.DOUBLE)
    odds = np.stack([odds for _, odds in pairs], axis=1)
    return g("Gemm", bits, g.constant(odds), g.constant([offset for offset, _ in pairs]))


def _events(g: Nodes, log_q: str, certainty: str, means: NDArray[np.float64], settings: BtflSettings) -> str:
    """Return (n, 2) counts of external and internal events; ``event`` is +1, -1 or 0 for each sample."""
    if settings.use_entropy:  # three signs must agree: (+, -, +) is internal, (-, +, -) external
        found = g("Concat", log_q, certainty, axis=1)
        ratio_and_excess = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
        signs = g("Sign", g("Gemm", found, g.constant(ratio_and_excess), g.constant([0.0, *-means])))
        internal = np.array([1.0, -1.0, 1.0])
    else:
        signs, internal = g("Sign", g("MatMul", log_q, g.constant([[1.0], [-1.0]]))), np.ones(1)
    agreement = np.stack([-internal, internal], axis=1)  # whole numbers: only if all agree, more than one less than all
    counts = g("Relu", g("Gemm", signs, g.constant(agreement), g.constant([1.0 - len(internal)] * 2)))
    g("Cast", g("MatMul", counts, g.constant([1.0, -1.0])), to=TensorProto.INT8, output="event")
    return counts


def _memory(g: Nodes, counts: str, settings: BtflSettings) -> str:
    """Return (n, 2): the a and b each sample is judged with; ``new_state`` is what they are afterwards."""

    def alone(branch: Nodes) -> None:
        after = _counted(branch, "state", counts, settings)
        branch("Reshape", after, branch.constant([2], np.int64), output=branch.output("new_state"))
        if settings.count == "before":
            branch("Identity", after, output=branch.output("used"))
        else:
            branch("Reshape", "state", branch.constant([1, 2], np.int64), output=branch.output("used"))

    def many(branch: Nodes) -> None:
        body = Nodes("memory")
        after = _counted(body, "before", "count", settings, output="after")
        body("Identity", after if settings.count == "before" else "before", output="used_now")
        pair = [double("before", 2), double("count", 2)]
        graph = helper.make_graph(body.nodes, "memory", pair, [double("after", 2), double("used_now", 2)])
        outputs = [branch.output("new_state"), branch.output("used")]
        branch.nodes.append(helper.make_node("Scan", ["state", counts], outputs, body=graph, num_scan_inputs=1))

    alone_or_many(g, counts, [double("new_state", 2), double("used", "batch", 2)], alone, many)
    return "used"


def _counted(g: Nodes, before: str, count: str, settings: BtflSettings, output: str | None = None) -> str:
    """Return a and b after the events of a sample, pruned if their sum is too large."""
    raised = g("Add", before, count if settings.use_history else g.constant([0.0, 0.0]))
    total = g("ReduceSum", raised, keepdims=1)
    scaled = raised if settings.prune_to == 1.0 else g("Mul", g.constant(settings.prune_to), raised)
    pruned = g("Add", g.constant(1.0), g("Div", scaled, total))
    return g("Where", g("Greater", total, g.constant(settings.prune_above)), pruned, raised, output=output)


def _rectified(g: Nodes, log_q: str, certainty: str, means: NDArray[np.float64], d: int, settings: BtflSettings) -> str:
    """Return (n, 1) log tau_hat."""
    if not settings.use_characteristic:
        return g("MatMul", log_q, g.constant([[0.0], [0.0]]))
    if settings.use_entropy:
        scales = np.array([means[0], settings.global_entropy_scale or means[1]])
        log_u = g("Gemm", certainty, g.constant(-np.diag(1.0 / scales)), g.constant([-1.0, -1.0]))
        log_q = g("Mul", g("Exp", g("Clip", log_u, "", g.constant(settings.log_u_limit))), log_q)
    ratio = g("MatMul", log_q, g.constant([[1.0 / d], [-1.0 / d]]))
    limit = settings.log_tau_limit
    return g("Clip", ratio, g.constant(-limit), g.constant(limit))


def _expectation(g: Nodes, used: str, log_tau_hat: str, settings: BtflSettings) -> str:
    """Return (n, 2) weights of the personal and the global head; ``e``, (n,), are the latter."""
    # logit(m) has a variance of about 1/a + 1/b, at least 4/lambda: a longer memory needs a finer grid
    step = min(0.5, 1.25 / math.sqrt(settings.prune_above))
    nodes = math.ceil(_STRETCH * math.asinh(_REACH / _STRETCH) / step)
    x = np.arange(-nodes, nodes + 1) * step / _STRETCH
    t, log_widths = _STRETCH * np.sinh(x), np.log(np.cosh(x))
    log_m, log_rest = -np.logaddexp(0.0, -t), -np.logaddexp(0.0, t)
    density = g("Softmax", g("Gemm", used, g.constant(np.stack([log_m, log_rest])), g.constant(log_widths)), axis=-1)
    odds_against = g("Gemm", g("Exp", log_tau_hat), g.constant(np.exp(-t)[None]), g.constant(1.0))  # and 1
    parts = g("Div", density, odds_against)
    g("MatMul", parts, g.constant(np.ones(len(t))), output="e")
    return g("Gemm", parts, g.constant(np.outer(np.ones(len(t)), [-1.0, 1.0])), g.constant([1.0, 0.0]))


def _model(g: Nodes, bundle: ClientBundle) -> onnx.ModelProto:
    event = helper.make_tensor_value_info("event", TensorProto.INT8, ["batch"])
    return model(g, bundle, state_size=2, more=[event])
