"""A client for devices without torch: as one ONNX graph, or as its extractor in ONNX and the rest by the core.

Exporting needs torch, and ``pip install btfl[onnx]``; running what was exported needs onnxruntime.
"""

from __future__ import annotations

from importlib.util import find_spec

from btfl.errors import InputError


def need_onnx() -> None:
    """Raise an ``InputError`` that says what to install, if something that exporting needs is not."""
    missing = [name for name in ("torch", "onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise InputError(f"exporting needs {', '.join(missing)}: pip install 'btfl[train,onnx]'")
