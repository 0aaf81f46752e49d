"""btfl: how much to trust the global and the personal head of a federated model, decided sample by sample.

This top level is the core: it needs numpy, scipy and safetensors only, and runs on an edge device. Training,
benchmarking and reports live in the subpackages and need ``pip install btfl[train]``.
"""

from btfl.core.bundle import ClientBundle
from btfl.core.expectation import expected_weight
from btfl.core.heads import LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.summary import Summary
from btfl.errors import BtflError
from btfl.methods.base import Method, Trace
from btfl.methods.btfl import Btfl, BtflSettings
from btfl.methods.coherent import Coherent, CoherentSettings
from btfl.monitor import Monitor

BayesianAdapter, BayesianSettings, CoherentAdapter = Btfl, BtflSettings, Coherent  # what 0.1 called them

__version__ = "0.1.0"

__all__ = [
    "BayesianAdapter",
    "BayesianSettings",
    "Btfl",
    "BtflError",
    "BtflSettings",
    "ClientBundle",
    "Coherent",
    "CoherentAdapter",
    "CoherentSettings",
    "DiscretisedLikelihood",
    "LinearHead",
    "Method",
    "Monitor",
    "Summary",
    "Trace",
    "expected_weight",
]
