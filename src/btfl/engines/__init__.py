"""Where a recipe runs: in this process, over a pool of processes, or on Flower. Same recipe and seed, same weights."""

from btfl.data.federated import FederatedData
from btfl.engines.faults import FaultSettings
from btfl.engines.federation import Event, train_federation
from btfl.engines.local import LocalEngine
from btfl.runs.trained import TrainedFederation

__all__ = ["Event", "FaultSettings", "FederatedData", "LocalEngine", "TrainedFederation", "train_federation"]
