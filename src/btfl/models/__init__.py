"""What is trained: an extractor ending in ReLU and a linear head, built by name, moved as plain arrays.

Importing this package imports torch. What runs on an edge device does not need it.
"""

from __future__ import annotations

from btfl.models.network import Network
from btfl.models.registry import MODELS, build, torch_draws
from btfl.models.weights import load_arrays, to_arrays

__all__ = ["MODELS", "Network", "build", "load_arrays", "to_arrays", "torch_draws"]
