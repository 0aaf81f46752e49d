"""Recipes by name."""

from __future__ import annotations

from collections.abc import Mapping

from btfl.errors import UnknownNameError
from btfl.imports import load_own
from btfl.recipes.base import Recipe
from btfl.recipes.settings import TrainingSettings

RECIPES: Mapping[str, str] = {
    "fedavg": "btfl.recipes.fedavg:FedAvg",
    "balanced": "btfl.recipes.balanced:Balanced",
    "fedrep": "btfl.recipes.fedrep:FedRep",
    "local": "btfl.recipes.local:Local",
    "ditto": "btfl.recipes.ditto:Ditto",
    "fedbabu": "btfl.recipes.fedbabu:FedBabu",
    "feddbe": "btfl.recipes.feddbe:FedDbe",
    "atp": "btfl.recipes.atp:Atp",
    "pfedfda": "btfl.recipes.pfedfda:PFedFda",
    "pfedfda-release": "btfl.recipes.pfedfda:PFedFdaRelease",
    "ttt": "btfl.recipes.ttt:TTT",
    "ttt-release": "btfl.recipes.ttt_release:TTTRelease",
}
"""Name -> ``module:Class``, imported when asked for."""


def make_recipe(name: str, settings: TrainingSettings, sample_shape: tuple[int, ...], classes: int) -> Recipe:
    """Make a recipe for samples of this shape, and so many classes."""
    return recipe_class(name)(settings, sample_shape, classes)


def recipe_class(name: str) -> type[Recipe]:
    """Import a recipe."""
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    found: type[Recipe] = load_own(RECIPES[name])
    return found
