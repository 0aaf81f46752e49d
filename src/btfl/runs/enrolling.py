"""What a saved federation has for devices that took no part in it."""

from __future__ import annotations

import numpy as np

from btfl.core.client import Weights
from btfl.core.heads import LinearHead
from btfl.enrolment import Federation
from btfl.errors import InputError
from btfl.runs.trained import TrainedFederation

RECIPES = ("fedavg", "balanced", "fedrep")
"""Recipes whose clients end with one shared extractor and heads on it: what a new device can be enrolled in."""
_UNIFORM = ("balanced",)  # recipes whose global head is trained as if all classes were equally common


def enrolling(federation: TrainedFederation, place: str = "the federation") -> Federation:
    """Return what new devices need of a federation; one without totals says how to make them.

    Parameters
    ----------
    federation : that was trained
    place : what it is called, for errors
    """
    recipe = federation.spec["recipe"]
    if recipe not in RECIPES:
        raise InputError(
            f"{place} was trained with '{recipe}', whose clients have networks of their own: a new device can be "
            f"enrolled with {', '.join(RECIPES)}"
        )
    if federation.total is None:
        raise InputError(
            f"{place} has no totals over its clients, because an older btfl trained it: give the command that trained "
            "it again (`btfl train` or `btfl bench` with the same folder), which repeats the end of training alone and "
            "saves them"
        )
    classes = federation.total.classes
    uniform = np.full(classes, 1 / classes) if recipe in _UNIFORM else None
    return Federation(head_of(federation.shared), federation.total, federation.provenance, uniform)


def head_of(shared: Weights) -> LinearHead | None:
    """Return the global head among the server's weights; None if there is none (FedRep)."""
    if "head.weight" not in shared:
        return None
    return LinearHead.of((shared["head.weight"], shared.get("head.bias")))
