"""The heads as they are: the two experts that every mixing method starts from, and the ceiling of all mixing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import probabilities
from btfl.errors import InputError
from btfl.knobs import NoSettings
from btfl.methods.base import Brings, Client, Column, Floats, Method
from btfl.methods.card import GREY, INK, Card

__all__ = ["GlobalHead", "Oracle", "PersonalHead", "probabilities"]


class GlobalHead(Method):
    """The global model, as it is."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card("fedavg", "FedAvg", "the global model, as it is", "McMahan et al., AISTATS 2017", INK, "s"),
    )
    enrols: ClassVar[Brings] = "nothing"

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the global head's probabilities for (samples, dimensions) features."""
        return probabilities(self.bundle.global_head, as_features(batch, self.bundle.dimensions))


class PersonalHead(Method):
    """The personal head alone, on the shared extractor."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "personal",
            "Personal head",
            "the personal head alone",
            "Zhou and Liu, KDD 2025 (a part of BTFL)",
            GREY,
            "s dotted",
            "dotted",
        ),
    )
    enrols: ClassVar[Brings] = "samples"

    def predict(self, batch: ArrayLike) -> Floats:
        """Return the personal head's probabilities for (samples, dimensions) features."""
        return probabilities(self.bundle.personal_head, as_features(batch, self.bundle.dimensions))


class Oracle(Method):
    """The better head for each sample, chosen by looking at the answer: no method, but the ceiling of all mixing."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "oracle",
            "Oracle",
            "knows the answer and picks the better head: the ceiling of all that mix two heads",
            colour=INK,
            marker="h open",
            line="dotted",
        ),
        Card("oracle-balanced", "Oracle (balanced)", colour=GREY, marker="h dotted", line="dashdot", recipe="balanced"),
    )
    sees_labels: ClassVar[bool] = True
    enrols: ClassVar[Brings] = "samples"
    columns: ClassVar[Mapping[str, Column]] = {"e": Column("1 where the global head was chosen, else 0")}

    def __init__(self, client: Client | ClientBundle, settings: NoSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._answers: NDArray[np.int64] | None = None

    def tell(self, labels: NDArray[np.int64]) -> None:
        """Tell it the answers to the next batch; the benchmark does this for the oracle and for nothing else."""
        self._answers = labels

    def predict(self, batch: ArrayLike) -> Floats:
        """Return, for each sample, the probabilities of the head that finds its answer likelier."""
        if self._answers is None:
            raise InputError("the oracle must be told the answers to a batch first")
        features = as_features(batch, self.bundle.dimensions)
        by_global = probabilities(self.bundle.global_head, features)
        by_personal = probabilities(self.bundle.personal_head, features)
        rows = np.arange(len(features))
        right_global = by_global.argmax(1) == self._answers
        right_personal = by_personal.argmax(1) == self._answers
        likelier = by_global[rows, self._answers] > by_personal[rows, self._answers]
        chosen = np.where(right_global == right_personal, likelier, right_global)
        self._answers, self.found = None, (chosen,)
        return np.where(chosen[:, None], by_global, by_personal)
