"""FedRoD at test time: the global head's logits, corrected by the private head's."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead, probabilities
from btfl.errors import InputError
from btfl.knobs import NoSettings
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import BLUE, Card


class FedRoD(Method):
    """The sum of the balanced global head and a private head that was trained to correct it."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedrod",
            "FedRoD",
            "the balanced global head's logits plus a private head's",
            "Chen and Chao, ICLR 2022",
            BLUE,
            "v",
            "dashed",
        ),
    )
    recipe: ClassVar[str] = "balanced"
    needs: ClassVar[tuple[str, ...]] = ("rod_head.weight",)

    def __init__(self, client: Client | ClientBundle, settings: NoSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        statistics, glob = self.bundle.statistics, self.bundle.global_head
        private = LinearHead(statistics["rod_head.weight"], statistics.get("rod_head.bias"))
        if private.weight.shape != glob.weight.shape:
            raise InputError(f"FedRoD's head is {private.weight.shape}, but the global head {glob.weight.shape}")
        self._sum = glob.times(private)

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the sum's probabilities for (samples, dimensions) features."""
        return probabilities(self._sum, as_features(batch, self.bundle.dimensions))
