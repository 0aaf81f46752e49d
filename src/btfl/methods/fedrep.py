"""FedRep at test time: the shared extractor under the client's private head."""

from __future__ import annotations

from typing import ClassVar

from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.heads import probabilities
from btfl.methods.base import Floats, Method
from btfl.methods.card import BLUE, Card


class FedRep(Method):
    """The private head on the extractor that was trained for such heads."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedrep", "FedRep", "a shared extractor under a private head, as it is", "Collins et al., ICML 2021",
            BLUE, "^",
        ),
    )  # fmt: skip
    recipe: ClassVar[str] = "fedrep"

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the private head's probabilities for (samples, dimensions) features."""
        return probabilities(self.bundle.personal_head, as_features(batch, self.bundle.dimensions))
