"""A network's weights in two parts: the extractor, and the head."""

from __future__ import annotations

from btfl.core.client import Weights

_EXTRACTOR, _HEAD = "extractor.", "head."


def extractor_of(weights: Weights) -> Weights:
    """Return the extractor's weights alone."""
    return {name: array for name, array in weights.items() if name.startswith(_EXTRACTOR)}


def head_of(weights: Weights) -> Weights:
    """Return the head's weights alone."""
    return {name: array for name, array in weights.items() if name.startswith(_HEAD)}
