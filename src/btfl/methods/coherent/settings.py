"""Every knob of Coherent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from btfl.core.bundle import OWN_SCATTER, ClientBundle
from btfl.core.calibration import Calibration, Choice
from btfl.core.generative import DISTORTED_WEIGHT, OPENNESS
from btfl.core.local_answer import LocalAnswer
from btfl.core.products import PRECISION_HELP, Precision
from btfl.errors import UnknownNameError
from btfl.knobs import Settings, knob
from btfl.methods.coherent.density import DENSITIES
from btfl.methods.coherent.evidence import EVIDENCES
from btfl.methods.coherent.memory import MEMORIES
from btfl.methods.coherent.weight import WEIGHTS

FIRST_VERSION = Choice(shrinkage=0.02, temperature=1.5, generative_share=0.5, local_temperature=1.0, inverse_kappa=0.0)
"""What the first version of Coherent has for every dataset; chosen on validation data of five federations."""
_BY_LIKELIHOOD = "None: by the clients' validation likelihood"


@dataclass(frozen=True)
class CoherentSettings(Settings):
    """What the data can set is set by them: the first five, from sums over all clients' validation parts.

    The others have one default for all datasets, chosen on validation data (``benchmarks/coherent_settings.py``). Four
    choose the method's parts; each is exchangeable, and the others of each kind are ablations. The preset
    ``first`` is version 1: ``CoherentSettings.make(preset="first")``.
    `btfl methods coherent` lists all settings, ``knobs()`` returns them.

    Example
    -------
    >>> CoherentSettings(memory="soft").memory
    'soft'
    """

    title: ClassVar[str] = "Coherent"
    of_arithmetic: ClassVar[tuple[str, ...]] = ("precision",)

    temperature: float | None = knob(
        None, f"T of the class scores: features are less Gaussian than the model says. {_BY_LIKELIHOOD}.", above=0
    )
    shrinkage: float | None = knob(None, f"r of the covariance. {_BY_LIKELIHOOD}.", least=0, most=1)
    generative_share: float | None = knob(
        None, f"Share of the generative head in the global answer of both heads. {_BY_LIKELIHOOD}.", least=0, most=1
    )
    local_temperature: float | None = knob(
        None, f"Temperature of the local answer of both heads. {_BY_LIKELIHOOD}.", above=0
    )
    inverse_kappa: float | None = knob(
        None, "1/kappa: how much clients differ in what a class looks like, 0 not at all. None: by moments.", least=0
    )
    distorted: float = knob(
        DISTORTED_WEIGHT,
        "How much a distorted copy counts in the class statistics, beside the sample itself.",
        least=0,
    )
    forgetting: float = knob(0.99, "f: how much of a mixture's counts survives a sample.", above=0, below=1)
    change: float = knob(0.005, "h: how likely the stream is to turn into another kind at a sample.", above=0, below=1)
    openness: float = knob(
        OPENNESS,
        "How much of everyone's label shares is mixed into the client's: no class is impossible.",
        least=0,
        most=1,
    )
    global_heads: Literal["fedavg", "generative", "both"] = knob(
        "both", "FedAvg's head, the generative one under everyone's shares, or a mean of both."
    )
    local_heads: Literal["personal", "generative", "both", "shared"] = knob(
        "both",
        "The personal head, the generative one under the client's shares, or the product of both; shared: the same "
        "with the global answer's covariance and temperature, even where the validation parts choose others.",
    )
    log_tau_limit: float = knob(30.0, "Limit of |log tau|.", above=0, most=600)
    density: str = knob("gaussian", "How features of a class are distributed.", choices=lambda: DENSITIES)
    evidence: str = knob("label", "What a sample says: see coherent/evidence.py.", choices=lambda: EVIDENCES)
    memory: str = knob("regimes", "How the stream is remembered: see coherent/memory.py.", choices=lambda: MEMORIES)
    weight: str = knob("predictive", "What e is made of: see coherent/weight.py.", choices=lambda: WEIGHTS)
    precision: Precision = knob("same-bits", PRECISION_HELP)

    @classmethod
    def make(cls, *, preset: str = "second", **changes: Any) -> Self:
        """Return version 1 (``first``) or this version (``second``) with single knobs changed."""
        presets: dict[str, dict[str, Any]] = {"first": FIRST_VERSION._asdict(), "second": {}}
        if preset not in presets:
            raise UnknownNameError("preset", str(preset), presets)
        return super().make(**{**presets[preset], **changes})

    def chosen(self, bundle: ClientBundle) -> Choice:
        """Return what is used on a bundle: a setting itself, else what the validation parts chose, else version 1's."""
        calibration = Calibration.in_statistics(bundle.statistics)
        found = (None if calibration is None else calibration.choose()) or FIRST_VERSION
        given = {name: getattr(self, name) for name in Choice._fields}
        return found._replace(**{name: value for name, value in given.items() if value is not None})

    def chosen_local(self, bundle: ClientBundle) -> LocalAnswer | None:
        """Return what the local answer is made with; None: with the global answer's shrinkage and temperature.

        So it is where the validation parts see no clear gain in others, where one of the numbers that make a local
        answer is given, with another openness or weight of copies than the validation parts were looked at with, and
        where the bundle lacks what it is made from.
        """
        given = (self.temperature, self.shrinkage, self.local_temperature, self.inverse_kappa)
        usual = (self.local_heads, self.density, self.openness, self.distorted) == (
            "both", "gaussian", OPENNESS, DISTORTED_WEIGHT,
        )  # fmt: skip
        if not usual or any(value is not None for value in given):
            return None
        calibration = Calibration.in_statistics(bundle.statistics)
        answer = None if calibration is None else calibration.choose_local()
        if answer is None or (answer.has_own_covariance and OWN_SCATTER not in bundle.statistics):
            return None
        return answer
