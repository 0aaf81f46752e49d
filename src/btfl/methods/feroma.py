"""FEROMA's assignment (Li, Fenoglio et al., ICLR 2026): the model whose profile the data resemble serves them.

A profile is the mean and the standard deviation of features on a few principal axes. FEROMA profiles a whole test set
at once and picks the model of the nearest stored profile, by Euclidean distance. Here the stream comes sample by
sample, so the profile is that of the last ``window`` samples; and a client has two models, its personal head, with
the profile of its own training features, and the global head, with everyone's. Profiles are standardised by
everyone's spread on each axis.

Left out: models of other clients and their profiles, which no client has here (summaries are only known as their
total); FEROMA's aggregation by 1 / distance while it trains; and differential privacy of profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.generative import NEEDED, everyones_sums
from btfl.core.heads import probabilities
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Column, Floats, Method
from btfl.methods.card import RED, Card
from btfl.methods.state import check_keys, numbers

Assignment = Literal["nearest", "weighted"]


@dataclass(frozen=True)
class FeromaSettings(Settings):
    """How FEROMA profiles and assigns."""

    title: ClassVar[str] = "FEROMA"

    window: int = knob(25, "How many of the last samples the stream's profile is made of.", least=1)
    axes: int = knob(10, "How many principal axes of everyone's features a profile has.", least=1)
    assignment: Assignment = knob("nearest", "The head of the nearest profile, or both by 1 / distance.")


class Feroma(Method):
    """The head whose profile is nearest to that of the stream's last samples."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "feroma",
            "FEROMA",
            "the head whose profile of features is nearest to that of the stream's last samples",
            "Li, Fenoglio et al., ICLR 2026",
            RED,
            "P dotted",
        ),
        Card(
            "feroma-weighted",
            "FEROMA (weighted)",
            "both heads, weighed by 1 / distance of their profiles to that of the stream's last samples",
            colour=RED,
            marker="X dotted",
            line="dashed",
            settings={"assignment": "weighted", "window": 100},
        ),
    )
    settings_class: ClassVar[type[Settings]] = FeromaSettings
    needs: ClassVar[tuple[str, ...]] = (*NEEDED, "train_features")
    columns: ClassVar[Mapping[str, Column]] = {
        "e": Column("weight of the global head"),
        "own_distance": Column("distance of the stream's profile to the client's own"),
        "global_distance": Column("distance of the stream's profile to everyone's"),
    }
    settings: FeromaSettings
    _recent: Floats

    def __init__(self, client: Client | ClientBundle, settings: FeromaSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        sums = everyones_sums(self.bundle)
        self._mean: Floats = sums.sums.sum(axis=0) / sums.counts.sum()
        covariance = sums.scatter / sums.counts.sum() - np.outer(self._mean, self._mean)
        scales, axes = np.linalg.eigh((covariance + covariance.T) / 2)
        chosen = slice(-1, -1 - min(self.settings.axes, len(scales)), -1)  # the largest first
        spread = np.sqrt(np.maximum(scales[chosen], 0.0))
        self._axes = axes[:, chosen] / np.where(spread > 0, spread, 1.0)
        self.global_profile: Floats = np.concatenate([np.zeros(len(spread)), (spread > 0).astype(np.float64)])
        self.own_profile = profile(self._projected(self.bundle.statistic("train_features")))
        self.reset()

    def _projected(self, features: Floats) -> Floats:
        return np.asarray((features - self._mean) @ self._axes)

    def predict(self, batch: ArrayLike) -> Floats:
        """Take each sample of (samples, dimensions) features into the window, and answer it by the assigned head."""
        features = as_features(batch, self.bundle.dimensions)
        distances = np.empty((len(features), 2))
        for i, feature in enumerate(features):
            self._recent = np.concatenate([self._recent, self._projected(feature[None])])[-self.settings.window :]
            now = profile(self._recent)
            distances[i] = [np.linalg.norm(now - of) for of in (self.own_profile, self.global_profile)]
        own, everyone = distances.T
        if self.settings.assignment == "nearest":
            e = (everyone < own).astype(np.float64)
        else:
            e = own / np.maximum(own + everyone, 1e-300)  # 1/everyone over the sum of both
        self.found = e, own, everyone
        heads = self.bundle.global_head, self.bundle.personal_head
        by_global, by_personal = (probabilities(head, features) for head in heads)
        return e[:, None] * by_global + (1 - e)[:, None] * by_personal

    @property
    def state(self) -> dict[str, Any]:
        """The window's features on the principal axes."""
        return {"recent": self._recent.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, ("recent",))
        count = len(state["recent"]) if isinstance(state["recent"], list) else 1
        if count > self.settings.window:
            raise InputError(f"the state has a window of {count} samples, above the setting window")
        self._recent, self.found = numbers("recent", state["recent"], (count, self._axes.shape[1])), None

    def reset(self) -> None:
        """Forget the window."""
        super().reset()
        self._recent = np.empty((0, self._axes.shape[1]))


def profile(projected: Floats) -> Floats:
    """Return the means, then the standard deviations, of (samples, axes) features."""
    return np.concatenate([projected.mean(axis=0), projected.std(axis=0)])
