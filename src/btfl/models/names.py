"""The models by name, without torch: the command line lists them before anything is built."""

from __future__ import annotations

from collections.abc import Mapping

MODELS: Mapping[str, str] = {
    "cnn": "btfl.models.cnn:cnn",
    "resnet20": "btfl.models.resnet20:resnet20",
    "cct4": "btfl.models.cct4:cct4",
    "mlp": "btfl.models.mlp:mlp",
    "cnn1d": "btfl.models.cnn1d:cnn1d",
    "linear": "btfl.models.linear:linear",
}
"""Where each model's factory is, as ``module:function``; imported when the model is built."""

HEADS_ALONE = ("linear",)
"""Models that are a head and no extractor: samples are the features already."""
