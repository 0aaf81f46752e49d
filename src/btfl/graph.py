"""One graph in onnxruntime, used as a method is: what ``btfl export --onnx client.onnx`` wrote, on a device.

Needs onnxruntime and numpy; neither onnx nor torch, and no bundle.

    graph = btfl.graph.Graph("client.onnx")
    probabilities = graph.predict(image[None])    # graph.trace says why, graph.state is what a device saves
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.methods.base import Trace
from btfl.methods.state import read_memory

__all__ = ["Graph"]

_BEGUN = {2: (1.0, 1.0), 4: (1 / 3, 1 / 3, 1.0, 1.0)}  # states of BTFL and of Coherent
_SHARE, _COUNT = (0.0, 1.0), (1.0, 1e4)  # what a memory may hold of each
_RANGES = {2: {"a": _COUNT, "b": _COUNT}, 4: {"internal": _SHARE, "mixture": _SHARE, "a": _COUNT, "b": _COUNT}}
_STATE, _NEW_STATE, _ANSWER = "state", "new_state", "probabilities"
_ROUNDING = 1e-6  # a state may be of single precision
_MOST = 2**30  # numbers of a batch: more is no batch, but a file that is damaged or means harm
Arrays = Mapping[str, NDArray[Any]]


class Graph:
    """A graph that decides, with its memory of the stream.

    It reads and writes the same arrays at every call, which saves onnxruntime some microseconds; what is returned is a
    copy.

    Parameters
    ----------
    path : of the ONNX file
    samples : how many each call has; onnxruntime then leaves out what it needs for other numbers
    threads : that onnxruntime may use; None: as many as it likes

    Examples
    --------
    >>> graph = Graph("client.onnx")                      # doctest: +SKIP
    >>> graph.predict(image[None]), graph.trace.e         # doctest: +SKIP
    """

    def __init__(self, path: str | Path, samples: int = 1, threads: int | None = None) -> None:
        if samples < 1:
            raise InputError(f"samples must be at least 1, not {samples}")
        try:
            import onnxruntime
        except ImportError:
            raise InputError("a graph runs in onnxruntime, which is not installed: pip install onnxruntime") from None
        options = onnxruntime.SessionOptions()
        options.add_free_dimension_override_by_name("batch", samples)
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise InputError(f"onnxruntime cannot read {path}: {error}") from None
        given = {value.name: value for value in self._session.get_inputs()}
        self._outputs = [value.name for value in self._session.get_outputs()]
        decides = len(given) == 2 and _STATE in given and {_ANSWER, _NEW_STATE} <= set(self._outputs)
        if not decides or given[_STATE].shape[0] not in _BEGUN:
            raise InputError(f"{path} holds no decision: export it without --extractor-only")
        (self._input,) = (name for name in given if name != _STATE)
        self._shape, self._dtype = tuple(given[self._input].shape), _type(given[self._input])
        if not all(isinstance(size, int) for size in self._shape) or math.prod(self._shape) > _MOST:
            raise InputError(f"{path} takes {self._input} of shape {self._shape}, which no exported graph does")
        self._begun = np.array(_BEGUN[given[_STATE].shape[0]], _type(given[_STATE]))
        self._sets = self._bind()
        self._seen, self._has_decided = 0, False

    def predict(self, batch: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return (samples, classes) probabilities for the next samples of the stream, in its order."""
        if not isinstance(batch, np.ndarray) or batch.shape != self._shape or batch.dtype != self._dtype:
            raise InputError(
                f"the graph takes {self._input} of shape {self._shape} and type {self._dtype}, not "
                f"{getattr(batch, 'shape', type(batch).__name__)} and {getattr(batch, 'dtype', 'no array')}; "
                "Graph(path, samples=n) is for n at a time"
            )
        self._sets.reverse()
        binding, arrays = self._sets[0]
        arrays[self._input][...] = batch
        self._session.run_with_iobinding(binding)
        self._seen, self._has_decided = self._seen + len(batch), True
        return arrays[_ANSWER].copy()

    @property
    def trace(self) -> Trace:
        """Why each sample of the last ``predict`` was decided so: ``e``, and ``event`` or ``all_external``."""
        if not self._has_decided:
            raise InputError("there is no trace yet: call predict first")
        _, arrays = self._sets[0]
        names = [name for name in self._outputs if name not in (_ANSWER, _NEW_STATE)]
        return Trace({name: arrays[name].copy() for name in names})

    @property
    def state(self) -> dict[str, Any]:
        """The memory of the stream: plain JSON, as that of the method itself."""
        _, arrays = self._sets[0]
        return {**dict(zip(_RANGES[len(self._begun)], arrays[_NEW_STATE].tolist(), strict=True)), "seen": self._seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        saved = read_memory(state, _RANGES[len(self._begun)])
        if saved.get("internal", 0.0) + saved.get("mixture", 0.0) > 1.0 + _ROUNDING:
            raise InputError(f"the state is out of range: no stream leads to {dict(state)}")
        _, arrays = self._sets[0]
        arrays[_NEW_STATE][...] = [saved[name] for name in _RANGES[len(self._begun)]]
        self._seen, self._has_decided = state["seen"], False

    def reset(self) -> None:
        """Forget the stream."""
        _, arrays = self._sets[0]
        arrays[_NEW_STATE][...] = self._begun
        self._seen, self._has_decided = 0, False

    def _bind(self) -> list[tuple[Any, Arrays]]:
        """Return two sets of arrays; each reads the state that the other has written."""
        given = np.zeros(self._shape, self._dtype)
        found = self._session.run(None, {self._input: given, _STATE: self._begun})
        outputs: list[Arrays] = [
            {name: np.empty_like(array) for name, array in zip(self._outputs, found, strict=True)} for _ in range(2)
        ]
        sets: list[tuple[Any, Arrays]] = []
        for own, other in (outputs, outputs[::-1]):
            binding = self._session.io_binding()
            for bind, arrays in (
                (binding.bind_input, {self._input: given, _STATE: other[_NEW_STATE]}),
                (binding.bind_output, own),
            ):
                for name, array in arrays.items():
                    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
            own[_NEW_STATE][...] = self._begun
            sets.append((binding, {**own, self._input: given}))
        return sets


def _type(value: Any) -> np.dtype[Any]:
    """Return the type of an input as numpy has it."""
    name: str = value.type.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
