"""The decision as an ONNX graph: features and the state (a, b) in; probabilities, e, events and the new state out.

The same steps as ``btfl.methods.btfl``, in float64. Two are written in another way, since ONNX lacks the functions:

- The memory is a ``Scan`` over the samples of a batch, so that an answer does not depend on how a stream is cut.
- e = E[m_hat] is a trapezoid sum over t = logit(m) on a fixed grid. In t the Beta density is exp(a log m + b log(1-m))
  but for a constant, so a softmax over the grid gives its weights, normalised; and m_hat = sigmoid(t - log tau_hat).
  Both are analytic in t: the error falls exponentially with the step (below 1e-12 for the a and b a memory can hold).
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
from btfl.export.nodes import Nodes, double, log_probabilities, model
from btfl.methods.btfl.settings import BtflSettings

_REACH = 36.0  # of the grid in t: beyond it a Beta(1, 1) has exp(-36) of its mass


def decision_graph(bundle: ClientBundle, settings: BtflSettings | None = None) -> onnx.ModelProto:
    """Return a model with inputs ``features`` (n, d) and ``state`` (2,), for a client and the settings."""
    settings = settings or BtflSettings()
    _check(settings)
    g = Nodes("decision")
    z = g("Cast", "features", to=TensorProto.DOUBLE)
    log_p, entropies = _heads(g, z, bundle)
    log_q = _likelihoods(g, z, bundle, settings)
    log_tau = g("MatMul", log_q, g.constant([[1.0], [-1.0]]))
    means = np.maximum(bundle.mean_entropies, settings.entropy_floor)

    counts, _ = _events(g, log_tau, g("Sub", entropies, g.constant(means)), settings)
    used = _memory(g, counts, settings)
    log_tau_hat = _rectified(g, log_q, entropies, means, bundle.dimensions, settings)
    e = _expectation(g, used, log_tau_hat, settings)

    g("Squeeze", e, g.constant([1], np.int64), output="e")
    weights = g("Unsqueeze", g("Concat", g("Sub", g.constant(1.0), e), e, axis=1), g.constant([2], np.int64))
    mixed = g("Mul", weights, g("Exp", log_p))
    g("ReduceSum", mixed, g.constant([1], np.int64), keepdims=0, output="probabilities")
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
    """Return (n, 2, classes) log-probabilities, personal first, and (n, 2) entropies."""
    log_p = log_probabilities(g, z, (bundle.personal_head, bundle.global_head))
    total = g("ReduceSum", g("Mul", g("Exp", log_p), log_p), g.constant([2], np.int64), keepdims=0)
    return log_p, g("Max", g("Neg", total), g.constant(0.0))


def _likelihoods(g: Nodes, z: str, bundle: ClientBundle, settings: BtflSettings) -> str:
    """Return (n, 2) log-likelihoods, local first; exact sums, as in the library."""
    everyone = bundle.global_likelihood
    if settings.global_from == "others":
        everyone = everyone.without(bundle.local_likelihood)
    pairs = [one.log_odds(settings.smoothing) for one in (bundle.local_likelihood, everyone)]
    bits = g("Cast", g("Greater", z, g.constant(THRESHOLD)), to=TensorProto.DOUBLE)
    odds = np.stack([odds for _, odds in pairs], axis=1)
    return g("Add", g("MatMul", bits, g.constant(odds)), g.constant([offset for offset, _ in pairs]))


def _events(g: Nodes, log_tau: str, excess: str, settings: BtflSettings) -> tuple[str, str]:
    """Return (n, 2) counts of external and internal events, and ``event``: +1, -1 or 0 for each sample."""
    if settings.use_entropy:  # three signs must agree: (+, -, +) is internal, (-, +, -) external
        signs = g("Sign", g("Concat", log_tau, excess, axis=1))
        agreement = g("MatMul", signs, g.constant([[1.0], [-1.0], [1.0]]))
        wanted = g.constant([-3.0, 3.0])
    else:
        agreement, wanted = g("Sign", log_tau), g.constant([-1.0, 1.0])
    counts = g("Cast", g("Equal", agreement, wanted), to=TensorProto.DOUBLE)
    event = g("MatMul", counts, g.constant([1.0, -1.0]))
    return counts, g("Cast", event, to=TensorProto.INT8, output="event")


def _memory(g: Nodes, counts: str, settings: BtflSettings) -> str:
    """Return (n, 2): the a and b each sample is judged with; ``new_state`` is what they are afterwards."""
    body = Nodes("memory")
    raised = body("Add", "before", "count" if settings.use_history else body.constant([0.0, 0.0]))
    total = body("ReduceSum", raised, keepdims=1)
    share = body("Div", body("Mul", body.constant(settings.prune_to), raised), total)
    pruned = body("Add", body.constant(1.0), share)
    too_long = body("Greater", total, body.constant(settings.prune_above))
    body("Where", too_long, pruned, raised, output="after")
    body("Identity", "after" if settings.count == "before" else "before", output="used_now")
    pair = [double("before", 2), double("count", 2)]
    graph = helper.make_graph(body.nodes, "memory", pair, [double("after", 2), double("used_now", 2)])
    used = "used"
    g.nodes.append(helper.make_node("Scan", ["state", counts], ["new_state", used], body=graph, num_scan_inputs=1))
    return used


def _rectified(g: Nodes, log_q: str, entropies: str, means: NDArray[np.float64], d: int, settings: BtflSettings) -> str:
    """Return (n, 1) log tau_hat."""
    if not settings.use_characteristic:
        return g("MatMul", log_q, g.constant([[0.0], [0.0]]))
    if settings.use_entropy:
        scales = g.constant([means[0], settings.global_entropy_scale or means[1]])
        log_u = g("Min", g("Div", g("Sub", entropies, scales), scales), g.constant(settings.log_u_limit))
        log_q = g("Mul", g("Exp", log_u), log_q)
    ratio = g("Div", g("MatMul", log_q, g.constant([[1.0], [-1.0]])), g.constant(float(d)))
    limit = settings.log_tau_limit
    return g("Clip", ratio, g.constant(-limit), g.constant(limit))


def _expectation(g: Nodes, used: str, log_tau_hat: str, settings: BtflSettings) -> str:
    """Return (n, 1) weights of the global head."""
    # logit(m) has a variance of about 1/a + 1/b, at least 4/lambda: a longer memory needs a finer grid
    step = min(0.5, 1.25 / math.sqrt(settings.prune_above))
    t = np.arange(-math.ceil(_REACH / step), math.ceil(_REACH / step) + 1) * step
    log_m, log_rest = -np.logaddexp(0.0, -t), -np.logaddexp(0.0, t)
    density = g("Softmax", g("MatMul", used, g.constant(np.stack([log_m, log_rest]))), axis=-1)
    odds_against = g("Exp", g("Sub", log_tau_hat, g.constant(t)))
    m_hat = g("Div", g.constant(1.0), g("Add", g.constant(1.0), odds_against))
    return g("ReduceSum", g("Mul", density, m_hat), g.constant([1], np.int64), keepdims=1)


def _model(g: Nodes, bundle: ClientBundle) -> onnx.ModelProto:
    event = helper.make_tensor_value_info("event", TensorProto.INT8, ["batch"])
    return model(g, bundle, state_size=2, more=[event])
