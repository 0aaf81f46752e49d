"""The coherent version as a method of the benchmark; the method itself is ``CoherentAdapter``, numpy and scipy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from numpy.typing import NDArray

from btfl.adapters.base import Adapter, Floats
from btfl.adapters.coherent import CoherentAdapter
from btfl.adapters.coherent_settings import CoherentSettings
from btfl.client import DeployedClient
from btfl.errors import UnknownNameError


class Coherent(Adapter):
    """Mixes the heads by the exact probability that the sample is external, under label shift."""

    paper: ClassVar[str] = "ours, not the paper's (docs/method.md)"
    summary: ClassVar[str] = "mixes the heads by P(external): exact evidence under label shift, three regimes, no tests"

    def __init__(self, client: DeployedClient, **settings: Any) -> None:
        super().__init__(client)
        self._adapter = CoherentAdapter(client.bundle, CoherentSettings(**settings))

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Every field of ``CoherentSettings``."""
        known = [field.name for field in fields(CoherentSettings)]
        for name in settings:
            if name not in known:
                raise UnknownNameError("setting of the coherent method", name, known)
        CoherentSettings(**settings)

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Give the mixture's probabilities."""
        return self._adapter.predict(batch)

    def reset(self) -> None:
        """Forget the stream."""
        self._adapter.reset()

    @property
    def trace(self) -> dict[str, NDArray[Any]]:
        """What the decision was made of."""
        trace = self._adapter.trace
        return {"e": trace.e, "log_tau": trace.log_tau, "all_external": trace.all_external}
