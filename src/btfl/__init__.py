"""btfl: how much to trust the global and the personal head of a federated model, decided sample by sample.

This top level is the core: it needs numpy, scipy and safetensors only, and runs on an edge device. Training,
benchmarking and reports live in the subpackages and need ``pip install btfl[train]``. Two functions are loaded when
they are asked for: ``btfl.bench`` compares methods (``btfl.benchmark``), ``btfl.record`` keeps what a method decides.
"""

from typing import TYPE_CHECKING, Any

from btfl.core.bundle import ClientBundle
from btfl.core.calibration import Calibration
from btfl.core.expectation import expected_weight
from btfl.core.heads import LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.summary import Summary
from btfl.errors import BtflError
from btfl.imports import load_own
from btfl.methods.base import Method, Trace
from btfl.methods.btfl import Btfl, BtflSettings
from btfl.methods.coherent import Coherent, CoherentSettings
from btfl.monitor import Monitor

if TYPE_CHECKING:
    from btfl.benchmark.api import bench as bench
    from btfl.report.recording import record as record

BayesianAdapter, BayesianSettings, CoherentAdapter = Btfl, BtflSettings, Coherent  # what 0.1 called them

__version__ = "0.2.0"

_LATER = {"bench": "btfl.benchmark.api:bench", "record": "btfl.report.recording:record"}
"""Functions whose import may load torch and pandas; not in ``__all__``, so that ``import *`` works without them."""

__all__ = [
    "BayesianAdapter",
    "BayesianSettings",
    "Btfl",
    "BtflError",
    "BtflSettings",
    "Calibration",
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


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'btfl' has no attribute '{name}'")
    try:
        found = load_own(_LATER[name])
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "btfl":
            raise
        raise ImportError(f"btfl.{name} needs the package {error.name}: pip install 'btfl[train]'") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
