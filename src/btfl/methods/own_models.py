"""Local-only, Ditto, FedBABU and FedDBE at test time: what each training leaves with a client, as it is."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.core.bundle import ClientBundle
from btfl.core.softmax import log_softmax
from btfl.knobs import NoSettings
from btfl.methods.base import Client, Floats, Method, Takes
from btfl.methods.card import BLUE, GREY, SKY, Card
from btfl.methods.finetuned import FineTuned
from btfl.methods.heads import GlobalHead, PersonalHead


class LocalOnly(PersonalHead):
    """The client's own network, trained without any other client."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card("local", "Local only", "a network of the client's own, trained alone", "no federation", GREY, "v open"),
    )
    recipe: ClassVar[str] = "local"


class Ditto(Method):
    """The personal model, trained on the client's own data and held to the global one."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "ditto", "Ditto", "a personal model that is held to the global one", "Li et al., ICML 2021", BLUE, "^ open"
        ),
    )
    recipe: ClassVar[str] = "ditto"
    takes: ClassVar[Takes] = "images"

    def __init__(self, client: Client | ClientBundle, settings: NoSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._network = self.client.network("personal")

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the personal model's probabilities for (samples, height, width, channels) images."""
        from btfl.models.forward import logits

        return np.exp(log_softmax(logits(self._network, np.ascontiguousarray(batch)).astype(np.float64)))


class FedBabu(FineTuned):
    """Body and head, fine-tuned by the client after the body was federated under a random head."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fedbabu",
            "FedBABU",
            "a body federated under a random head, then fine-tuned with it by each client",
            "Oh et al., ICLR 2022",
            BLUE,
            "P",
        ),
    )
    recipe: ClassVar[str] = "fedbabu"


class FedDbe(PersonalHead):
    """The global head on features that are moved by the client's own vector."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "feddbe",
            "FedDBE",
            "the global head on features moved by a vector of the client's own",
            "Zhang et al., NeurIPS 2023",
            SKY,
            "^ dotted",
        ),
    )
    recipe: ClassVar[str] = "feddbe"


class FedDbeGlobal(GlobalHead):
    """FedDBE's global head on features as they are."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "feddbe-global",
            "FedDBE (global)",
            "FedDBE's global head on features as they are",
            "Zhang et al., NeurIPS 2023",
            SKY,
            "v dotted",
            "dashed",
        ),
    )
    recipe: ClassVar[str] = "feddbe"
