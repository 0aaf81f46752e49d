"""The extractor as an ONNX graph: images (uint8), signals or vectors (float32) in, features (n, d) out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from torch import nn

from btfl.export.before import Before
from btfl.export.nodes import IR_VERSION, OPSET
from btfl.models import Network
from btfl.models.inputs import arranged


class _Extractor(nn.Module):
    """What happens to a sample before the heads, scaling included: a device passes in what it measures."""

    def __init__(self, network: Network, before: Before) -> None:
        super().__init__()
        self.network, self.before = network, before

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.network.features(arranged(self.before(samples)))


def extractor_graph(network: Network, before: Before) -> onnx.ModelProto:
    """Return a network's extractor, and what comes before it, as a graph with a dynamic batch."""
    sample_shape = before.sample_shape
    is_image = len(sample_shape) == 3
    example = torch.zeros((2, *sample_shape), dtype=torch.uint8 if is_image else torch.float32)
    with _quietly():
        program: Any = torch.onnx.export(
            _Extractor(network, before).eval(),
            (example,),
            dynamo=True,
            input_names=["images" if is_image else "samples"],
            output_names=["features"],
            dynamic_shapes={"samples": {0: torch.export.Dim("batch")}},
            opset_version=OPSET,
            verbose=False,
        )
    model: onnx.ModelProto = program.model_proto
    model.ir_version = IR_VERSION
    _forget_where_it_was_made(model)
    return model


def _forget_where_it_was_made(model: onnx.ModelProto) -> None:
    """Drop stack traces and paths of this machine, which torch writes beside every node."""
    for thing in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del thing.metadata_props[:]
        thing.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.initializer):
        del value.metadata_props[:]
        value.doc_string = ""


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence torch, which warns on every export of a missing torchvision and of deprecated parts of itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
