"""Ways to train a federation. A recipe says what client and server do; an engine says where it happens."""

from btfl.core.client import ClientOutcome
from btfl.data.federated import ClientData
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.settings import TrainingSettings

__all__ = ["ClientData", "ClientOutcome", "Description", "Recipe", "TrainingSettings", "Update"]
