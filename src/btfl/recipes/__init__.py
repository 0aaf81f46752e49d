"""Ways to train a federation. A recipe says what client and server do; an engine says where it happens."""

from btfl.recipes.base import ClientData, ClientOutcome, Description, Recipe, Update
from btfl.recipes.settings import TrainingSettings

__all__ = ["ClientData", "ClientOutcome", "Description", "Recipe", "TrainingSettings", "Update"]
