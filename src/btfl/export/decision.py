"""BTFL's decision as an ONNX graph: features and the state (a, b) in; probabilities, e, events and the new state out.

The steps are those of ``btfl.methods.btfl``, in float64 (``export/steps.py``) or in float32 (``export/single.py``).
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.export.nodes import alone_or_many, features, flat_logits, model, nodes_for
from btfl.export.single import SingleSteps
from btfl.export.steps import Steps
from btfl.methods.btfl.settings import BtflSettings


def decision_graph(bundle: ClientBundle, settings: BtflSettings | None = None) -> onnx.ModelProto:
    """Return a model with inputs ``features`` (n, d) and ``state`` (2,), for a client and the settings."""
    settings = settings or BtflSettings()
    _check(settings)
    g = nodes_for(settings.precision)
    steps = (SingleSteps if settings.precision == "single" else Steps)(bundle, settings)
    z = features(g)
    scores, likelihoods = flat_logits(g, z, (bundle.personal_head, bundle.global_head)), steps.likelihoods(g, z)
    event = helper.make_tensor_value_info("event", TensorProto.INT8, ["batch"])
    answer = g.floats("probabilities", "batch", bundle.classes)
    alone_or_many(
        g,
        scores,
        [answer, g.floats("e", "batch"), event, g.floats("new_state", 2)],
        lambda branch: steps.alone(branch, scores, likelihoods),
        lambda branch: steps.many(branch, scores, likelihoods),
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
