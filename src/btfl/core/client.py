"""What a client is left with when training ends: its bundle, and the weights of networks of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle

Weights = Mapping[str, NDArray[np.float32]]

AUXILIARY = "auxiliary."
"""Begins the names of weights that travel with a network but are no part of it, such as a rotation head's."""


def split_auxiliary(weights: Weights) -> tuple[Weights, Weights]:
    """Return the weights of the network itself, and those of its auxiliary heads, by their names without the prefix."""
    own = {key: array for key, array in weights.items() if not key.startswith(AUXILIARY)}
    heads = {key.removeprefix(AUXILIARY): array for key, array in weights.items() if key.startswith(AUXILIARY)}
    return own, heads


@dataclass(frozen=True, eq=False)
class ClientOutcome:
    """What a client is left with: its bundle, and networks of its own where a method needs them."""

    bundle: ClientBundle
    networks: Mapping[str, Weights] = field(default_factory=dict)
