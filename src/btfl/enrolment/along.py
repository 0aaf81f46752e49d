"""A device that begins with nothing and learns its label shares from the stream, as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import mean_entropy
from btfl.core.likelihood import THRESHOLD, DiscretisedLikelihood
from btfl.enrolment.enrol import Federation, enrol, generative_head, unlabelled_bundle
from btfl.enrolment.renewal import carried_over
from btfl.enrolment.shares import responsibilities, strength
from btfl.errors import InputError
from btfl.methods.base import Method
from btfl.methods.state import check_keys, count, numbers

Floats = NDArray[np.float64]

REMEMBERED = 500
"""Samples that count: of an older one only so much is left as ``REMEMBERED`` later ones have left of it, 1/e."""
EVERY = 32
"""Samples between two bundles."""


class LearnsAlong:
    """A method for a device of which nothing is known: each batch is answered, and then learned from.

    The shares of the classes are followed by expectation maximisation over the stream, under the federation's
    generative head; with them come the likelihood and the mean entropies that a bundle has. Every ``EVERY`` samples the
    bundle is made again, and the method goes on with it and with its memory. The shares are those of the stream,
    whoever its samples belong to.

    Parameters
    ----------
    federation : what the server keeps
    method : the class of a method whose memory outlives a bundle: ``Btfl`` or ``Coherent``
    settings : of the method

    Example
    -------
    >>> LearnsAlong(federation, Coherent).predict(features)                             # doctest: +SKIP
    """

    def __init__(self, federation: Federation, method: type[Method], **settings: Any) -> None:
        if not method.memory_outlives_bundle:
            raise InputError(f"{method.card().title} cannot go on with another bundle, so it cannot learn along")
        self.federation, self._class, self._settings = federation, method, settings
        self.reset()

    def reset(self) -> None:
        """Forget the stream, and all that was learned from it."""
        classes, dimensions = self.federation.total.classes, self.federation.total.dimensions
        self._counts, self._off = np.zeros(classes), np.zeros(dimensions)
        self._entropies = np.zeros(2)
        self._weight, self._seen, self._since = 0.0, 0, 0
        self._trace: Mapping[str, NDArray[Any]] | None = None
        self._shown: Any = None  # what the bundle was made of, and not what has been learned since
        self.method = self._class(enrol(self.federation), **self._settings)

    @property
    def bundle(self) -> ClientBundle:
        """The bundle as it is now."""
        return self.method.bundle

    def predict(self, batch: ArrayLike) -> Floats:
        """Return (samples, classes) probabilities for (samples, dimensions) features; then learn from them."""
        features = as_features(batch, width=self.federation.total.dimensions)
        answers = self.method.predict(features)
        self._trace = self.method.trace
        self._learn(features)
        return answers

    @property
    def trace(self) -> Mapping[str, NDArray[Any]]:
        """The method's trace of the last batch."""
        return self.method.trace if self._trace is None else self._trace

    @property
    def state(self) -> dict[str, Any]:
        """The method's memory, and the sums that the bundle follows from: plain JSON."""
        learned = {"counts": self._counts.tolist(), "off": self._off.tolist(), "entropies": self._entropies.tolist()}
        since = {"weight": self._weight, "seen": self._seen, "since": self._since}
        return {"method": self.method.state, "shown": self._shown, **learned, **since}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        names = ("method", "shown", "counts", "off", "entropies", "weight", "seen", "since")
        check_keys(state, names)
        classes, dimensions = self.federation.total.classes, self.federation.total.dimensions
        most = float(REMEMBERED + 1)
        self._counts = numbers("counts", state["counts"], (classes,), 0.0, most)
        self._off = numbers("off", state["off"], (dimensions,), 0.0, most)
        self._entropies = numbers("entropies", state["entropies"], (2,), 0.0, most * np.log(max(classes, 2)))
        self._weight = float(numbers("weight", [state["weight"]], (1,), 0.0, most)[0])
        self._seen, self._since = count("seen", state["seen"]), count("since", state["since"])
        self._shown = state["shown"]
        fresh = self._class(self._bundle_of(self._shown), **self._settings)
        fresh.restore(state["method"])
        self.method = fresh

    def _learn(self, features: Floats) -> None:
        federation = self.federation
        fade = 1.0 - 1.0 / REMEMBERED
        lean = strength(len(self._counts)) * federation.everyone
        log_shares = np.log((self._counts + lean) / (self._weight + lean.sum()))
        logits = federation.scores.logits(features)
        personal, head = generative_head(federation, self._counts)
        for place in range(len(features)):
            row = features[place : place + 1]
            found = responsibilities(logits[place : place + 1], log_shares)[0]
            self._counts = fade * self._counts + found
            self._off = fade * self._off + (row[0] <= THRESHOLD)
            self._entropies = fade * self._entropies + [mean_entropy(one, row) for one in (personal, head)]
            self._weight = fade * self._weight + 1.0
            log_shares = np.log((self._counts + lean) / (self._weight + lean.sum()))
        self._seen += len(features)
        self._since += len(features)
        if self._since >= EVERY:
            self._since = 0
            self._shown = self._sums()
            self.method = carried_over(self.method, self._bundle_of(self._shown))

    def _sums(self) -> dict[str, Any]:
        """Return what the bundle follows from, as plain JSON."""
        return {
            "counts": self._counts.tolist(),
            "off": (self._off / self._weight).tolist(),
            "entropies": (self._entropies / self._weight).tolist(),
            "weight": self._weight,
        }

    def _bundle_of(self, shown: Any) -> ClientBundle:
        if shown is None:
            return enrol(self.federation)
        check_keys(shown, ("counts", "off", "entropies", "weight"))
        most = float(REMEMBERED + 1)
        counts = numbers("counts", shown["counts"], (len(self._counts),), 0.0, most)
        off = np.clip(numbers("off", shown["off"], (len(self._off),), 0.0, 1.0), 0.0, 1.0)
        own, everyone = numbers("entropies", shown["entropies"], (2,), 0.0).tolist()
        samples = max(round(float(numbers("weight", [shown["weight"]], (1,), 1.0, most)[0])), 1)
        return unlabelled_bundle(
            self.federation, counts, DiscretisedLikelihood(off, samples), (own, everyone), {}, None
        )
