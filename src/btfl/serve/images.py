"""Images to features, by the extractor's ONNX graph in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.provenance import Provenance
from btfl.errors import InputError
from btfl.serve.refusal import RefusedError


class Extractor:
    """An extractor: uint8 images (n, height, width, channels) to float64 features (n, d)."""

    def __init__(self, graph: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # workers share the processor by themselves
        try:
            self._session: Any = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise InputError(f"onnxruntime cannot read the extractor: {error}") from None
        self.provenance = Provenance.of_model(self._session.get_modelmeta().custom_metadata_map)
        taken = self._session.get_inputs()[0]
        self.shape: tuple[int, ...] = tuple(taken.shape[1:])
        if taken.name != "images" or taken.type != "tensor(uint8)" or len(self.shape) != 3:
            raise InputError("an extractor takes uint8 images (n, height, width, channels), as `btfl export` writes it")

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features of images."""
        if images.shape[1:] != self.shape:
            raise RefusedError(
                400, f"images have the shape {list(images.shape[1:])}, but {list(self.shape)} is expected"
            )
        (features,) = self._session.run(["features"], {"images": np.ascontiguousarray(images)})
        return np.asarray(features, dtype=np.float64)


def has_onnxruntime() -> bool:
    """Return whether images can be taken at all."""
    from importlib.util import find_spec

    return find_spec("onnxruntime") is not None
