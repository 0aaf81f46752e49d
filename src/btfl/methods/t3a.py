"""T3A (Iwasawa and Matsuo, NeurIPS 2021): move each class's prototype to where the stream's surest samples are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.softmax import entropy, log_softmax
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import VIOLET, Card
from btfl.methods.state import check_keys, numbers


@dataclass(frozen=True)
class T3ASettings(Settings):
    """How T3A remembers."""

    title: ClassVar[str] = "T3A"

    supports: int = knob(20, "How many of its surest samples a class keeps.", least=1)


class T3A(Method):
    """Replaces the global head's rows by means of the features it was surest of, ``supports`` for each class.

    A class's supports are features of length 1 that the head took for that class, its own row being the first. They
    are the ones of the lowest entropy under the head so far. The prototype is their mean, brought to length 1, and the
    answer is the softmax of the products of feature and prototypes. A sample becomes a support before it is answered,
    and samples are taken one at a time, so the answers do not depend on how the stream is cut.
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "t3a",
            "T3A",
            "prototypes from the stream's surest samples in place of the global head's rows",
            "Iwasawa and Matsuo, NeurIPS 2021",
            VIOLET,
            "<",
        ),
    )
    settings_class: ClassVar[type[Settings]] = T3ASettings
    settings: T3ASettings

    def __init__(self, client: Client | ClientBundle, settings: T3ASettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self._head = self.bundle.global_head
        self._rows = unit(self._head.weight)
        self._row_entropies = entropy(log_softmax(self._head.logits(self._head.weight)))
        self.reset()

    def predict(self, batch: ArrayLike) -> Floats:
        """Take in each sample of (samples, dimensions) features, then return its probabilities."""
        features = as_features(batch, self.bundle.dimensions)
        believed = log_softmax(self._head.logits(features))
        logits = np.empty_like(believed)
        for i, (feature, label, doubt) in enumerate(zip(features, believed.argmax(1), entropy(believed), strict=True)):
            self._take_in(feature, int(label), doubt)
            logits[i] = self._prototypes @ feature
        return np.exp(log_softmax(logits))

    def _take_in(self, feature: Floats, label: int, doubt: np.float64) -> None:
        supports = np.concatenate([self._supports[label], unit(feature[None])])
        entropies = np.append(self._entropies[label], doubt)
        surest = np.sort(np.argsort(entropies, kind="stable")[: self.settings.supports])
        self._supports[label], self._entropies[label] = supports[surest], entropies[surest]
        self._prototypes[label] = unit(supports[surest].mean(0)[None])[0]

    @property
    def state(self) -> dict[str, Any]:
        """Of each class: its supports, their entropies, and the prototype."""
        return {
            "supports": [supports.tolist() for supports in self._supports],
            "entropies": [entropies.tolist() for entropies in self._entropies],
            "prototypes": self._prototypes.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, ("supports", "entropies", "prototypes"))
        shape = classes, dimensions = self._rows.shape
        prototypes = numbers("prototypes", state["prototypes"], shape, -1.0, 1.0)
        for name in ("supports", "entropies"):
            if not isinstance(state[name], list) or len(state[name]) != classes:
                raise InputError(f"{name} in the state must be a list with an entry for each of the {classes} classes")
        supports = [numbers("supports", value, (None, dimensions), -1.0, 1.0) for value in state["supports"]]
        if max(map(len, supports)) > self.settings.supports:
            raise InputError(f"the state has a class of {max(map(len, supports))} supports, above the setting supports")
        entropies = [
            numbers("entropies", value, (len(kept),), 0.0, math.log(classes))
            for value, kept in zip(state["entropies"], supports, strict=True)
        ]  # fmt: skip
        self._supports, self._entropies, self._prototypes, self.found = supports, entropies, prototypes, None

    def reset(self) -> None:
        """Go back to the head's own rows."""
        super().reset()
        self._supports = [row[None] for row in self._rows]
        self._entropies = [value[None] for value in self._row_entropies]
        self._prototypes = self._rows.copy()


def unit(vectors: Floats) -> Floats:
    """Return the rows at length 1; a row of zeros stays."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))
