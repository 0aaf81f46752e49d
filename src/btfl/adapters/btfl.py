"""BTFL as a method of the benchmark; the method itself is ``BayesianAdapter``, which needs no federation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from btfl.adapters.base import Adapter, Floats
from btfl.adapters.bayesian import BayesianAdapter
from btfl.bayes.settings import BayesianSettings
from btfl.client import DeployedClient


class Btfl(Adapter):
    """Mixes the heads by a Beta-Bernoulli memory of the stream and the sample's own evidence."""

    mixes_two_heads: ClassVar[bool] = True
    paper: ClassVar[str] = "Zhou and Liu, KDD 2025"
    summary: ClassVar[str] = "mixes both heads by a memory of the stream and the sample's evidence, in closed form"

    def __init__(self, client: DeployedClient, preset: str = "paper", **changes: Any) -> None:
        super().__init__(client)
        self._adapter = BayesianAdapter(client.bundle, BayesianSettings.preset(preset, **changes))

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """Every knob of ``BayesianSettings``, and ``preset``."""
        BayesianSettings.preset(**{"name": "paper", **_renamed(settings)})

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Give the mixture's probabilities."""
        return self._adapter.predict(batch)

    def reset(self) -> None:
        """Forget the stream."""
        self._adapter.reset()

    @property
    def trace(self) -> dict[str, NDArray[Any]]:
        """Everything the decision was made of."""
        trace = self._adapter.trace
        return {
            "e": trace.e,
            "log_tau": trace.log_tau,
            "log_tau_hat": trace.log_tau_hat,
            "event": trace.event,
            "a": trace.a,
            "b": trace.b,
            "local_entropy": trace.local_entropy,
            "global_entropy": trace.global_entropy,
        }


def _renamed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"name" if key == "preset" else key: value for key, value in settings.items()}
