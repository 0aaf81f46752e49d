"""Every knob of Coherent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from btfl.knobs import Settings, knob
from btfl.methods.coherent.density import DENSITIES
from btfl.methods.coherent.evidence import EVIDENCES
from btfl.methods.coherent.memory import MEMORIES
from btfl.methods.coherent.weight import WEIGHTS


@dataclass(frozen=True)
class CoherentSettings(Settings):
    """One default for all datasets, chosen on validation data (``benchmarks/coherent_settings.py``).

    The last four choose the method's parts; each is exchangeable, and the others of each kind are ablations.
    `btfl methods coherent` lists all settings, ``knobs()`` returns them.

    Example
    -------
    >>> CoherentSettings(memory="soft").memory
    'soft'
    """

    title: ClassVar[str] = "Coherent"

    temperature: float = knob(1.5, "T of the class scores: features are less Gaussian than the model says.", above=0)
    shrinkage: float = knob(0.02, "r of the covariance.", least=0, most=1)
    distorted: float = knob(
        1.0, "How much a distorted copy counts in the class statistics, beside the sample itself.", least=0
    )
    forgetting: float = knob(0.99, "f: how much of a mixture's counts survives a sample.", above=0, below=1)
    change: float = knob(0.005, "h: how likely the stream is to turn into another kind at a sample.", above=0, below=1)
    openness: float = knob(
        0.2, "How much of everyone's label shares is mixed into the client's: no class is impossible.", least=0, most=1
    )
    global_heads: Literal["fedavg", "generative", "both"] = knob(
        "both", "FedAvg's head, the generative one under everyone's shares, or the mean of both."
    )
    local_heads: Literal["personal", "generative", "both"] = knob(
        "both", "The personal head, the generative one under the client's shares, or the product of both."
    )
    log_tau_limit: float = knob(30.0, "Limit of |log tau|.", above=0, most=600)
    density: str = knob("gaussian", "How features of a class are distributed.", choices=lambda: DENSITIES)
    evidence: str = knob("label", "What a sample says: see coherent/evidence.py.", choices=lambda: EVIDENCES)
    memory: str = knob("regimes", "How the stream is remembered: see coherent/memory.py.", choices=lambda: MEMORIES)
    weight: str = knob("predictive", "What e is made of: see coherent/weight.py.", choices=lambda: WEIGHTS)
