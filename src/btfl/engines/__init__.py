"""Where a recipe runs: in this process, over a pool of processes, or on Flower. Same recipe, same seed, same weights."""

from btfl.engines.data import FederatedData
from btfl.engines.federation import Event, train_federation
from btfl.engines.local import LocalEngine
from btfl.engines.trained import TrainedFederation

__all__ = ["Event", "FederatedData", "LocalEngine", "TrainedFederation", "train_federation"]
