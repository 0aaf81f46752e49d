"""What is trained: an extractor and a linear head, built by name, exchanged as plain arrays.

``MODELS`` needs no torch; it is imported with the first of the other names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from btfl.models.names import MODELS

if TYPE_CHECKING:
    from btfl.models.factory import build, torch_draws
    from btfl.models.network import Network
    from btfl.models.weights import load_arrays, to_arrays

__all__ = ["MODELS", "Network", "build", "load_arrays", "to_arrays", "torch_draws"]

_WHERE = {
    "Network": "network",
    "build": "factory",
    "torch_draws": "factory",
    "load_arrays": "weights",
    "to_arrays": "weights",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
