"""BTFL and our coherent version as methods of the benchmark; the methods themselves need numpy and scipy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from numpy.typing import NDArray

from btfl.errors import UnknownNameError
from btfl.methods.base import Adapter, Floats
from btfl.methods.btfl.method import BayesianAdapter
from btfl.methods.btfl.settings import BayesianSettings
from btfl.methods.coherent.method import CoherentAdapter
from btfl.methods.coherent.settings import CoherentSettings
from btfl.runs.client import DeployedClient


class CoreMethod(Adapter):
    """A method of the core, which knows bundles and no federation."""

    traced: ClassVar[tuple[str, ...]]
    """What of its trace is worth a column of the results."""

    def __init__(self, client: DeployedClient, adapter: BayesianAdapter | CoherentAdapter) -> None:
        super().__init__(client)
        self._adapter = adapter

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the mixture's probabilities."""
        return self._adapter.predict(batch)

    def reset(self) -> None:
        """Forget the stream."""
        self._adapter.reset()

    @property
    def trace(self) -> dict[str, NDArray[Any]]:
        """What the decision was made of."""
        return {name: getattr(self._adapter.trace, name) for name in self.traced}


class Btfl(CoreMethod):
    """Mixes the heads by a Beta-Bernoulli memory of the stream and the sample's own evidence."""

    mixes_two_heads: ClassVar[bool] = True
    paper: ClassVar[str] = "Zhou and Liu, KDD 2025"
    summary: ClassVar[str] = "mixes both heads by a memory of the stream and the sample's evidence, in closed form"
    traced: ClassVar[tuple[str, ...]] = (
        "e", "log_tau", "log_tau_hat", "event", "a", "b", "local_entropy", "global_entropy",
    )  # fmt: skip

    def __init__(self, client: DeployedClient, preset: str = "paper", **changes: Any) -> None:
        super().__init__(client, BayesianAdapter(client.bundle, BayesianSettings.preset(preset, **changes)))

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Every knob of ``BayesianSettings``, and ``preset``."""
        changes = {key: value for key, value in settings.items() if key != "preset"}
        BayesianSettings.preset(settings.get("preset", "paper"), **changes)


class Coherent(CoreMethod):
    """Mixes the heads by the exact probability that the sample is external, under label shift."""

    paper: ClassVar[str] = "ours, not the paper's (docs/method.md)"
    summary: ClassVar[str] = "mixes the heads by P(external): exact evidence under label shift, three regimes, no tests"
    traced: ClassVar[tuple[str, ...]] = ("e", "log_tau", "all_external")

    def __init__(self, client: DeployedClient, **settings: Any) -> None:
        super().__init__(client, CoherentAdapter(client.bundle, CoherentSettings(**settings)))

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Every field of ``CoherentSettings``."""
        known = [field.name for field in fields(CoherentSettings)]
        for name in settings:
            if name not in known:
                raise UnknownNameError("setting of the coherent method", name, known)
        CoherentSettings(**settings)
