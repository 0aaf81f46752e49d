"""btfl: how much to trust the global and the personal head of a federated model, decided sample by sample.

This top level is the core: it needs numpy, scipy and safetensors only, and runs on an edge device. Training,
benchmarking and reports live in the subpackages and need ``pip install btfl[train]``.
"""

from btfl.core.bundle import ClientBundle
from btfl.core.expectation import expected_weight
from btfl.core.heads import LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.errors import BtflError
from btfl.methods.btfl.method import BayesianAdapter, Trace
from btfl.methods.btfl.settings import BayesianSettings
from btfl.methods.coherent.method import CoherentAdapter
from btfl.methods.coherent.settings import CoherentSettings

__version__ = "0.1.0"

__all__ = [
    "BayesianAdapter",
    "BayesianSettings",
    "BtflError",
    "ClientBundle",
    "CoherentAdapter",
    "CoherentSettings",
    "DiscretisedLikelihood",
    "LinearHead",
    "Trace",
    "expected_weight",
]
