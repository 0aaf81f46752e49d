"""FedRep at test time: the shared extractor under the client's private head, as it is."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from btfl.methods.base import Adapter, Floats
from btfl.methods.heads import probabilities


class FedRep(Adapter):
    """The private head on the extractor that was trained for such heads."""

    recipe: ClassVar[str] = "fedrep"
    paper: ClassVar[str] = "Collins et al., ICML 2021"
    summary: ClassVar[str] = "a shared extractor under a private head, as it is"

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return the private head's probabilities."""
        return probabilities(self.client.bundle.personal_head, batch)
