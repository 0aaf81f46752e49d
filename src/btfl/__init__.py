"""btfl: how much to trust the global and the personal head of a federated model, decided sample by sample.

This top level is the core: it needs numpy, scipy and safetensors only, and runs on an edge device. Training,
benchmarking and reports live in the subpackages and need ``pip install btfl[train]``.
"""

from btfl.adapters.bayesian import BayesianAdapter, Trace
from btfl.adapters.coherent import CoherentAdapter
from btfl.adapters.coherent_settings import CoherentSettings
from btfl.bayes import BayesianSettings, DiscretisedLikelihood, expected_weight
from btfl.bundle import ClientBundle
from btfl.errors import BtflError
from btfl.heads import LinearHead

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
