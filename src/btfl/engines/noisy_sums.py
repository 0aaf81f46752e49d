"""Differential privacy under secure aggregation: clients clip and add their part of the noise before they mask it.

Of those that are asked, at least ``threshold`` are in a sum, or there is none. So each adds a ``threshold``-th of the
variance that the plan asks for: the sum has all of it, or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.core.client import Weights
from btfl.core.private import SCATTER
from btfl.core.summary import Summary
from btfl.engines.fixed import Field, Form
from btfl.engines.private import private_sums
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.privacy import noise_generator

Floats = NDArray[np.float64]
_FAR = 12.0  # standard deviations: no noise is beyond them in the age of the universe


@dataclass(frozen=True)
class NoiseShare:
    """What a client adds in one sum.

    Parameters
    ----------
    multiplier : standard deviation of the noise in the whole sum, in units of the sensitivity
    threshold : the fewest clients that can be in a sum
    """

    multiplier: float
    threshold: int

    def form(self, recipe: Recipe, task: str, clients: int, most_samples: int, has_copies: bool) -> Form:
        """Return how private answers to a task are added up."""
        if task == "train":
            limit = recipe.settings.update_clip * (1 + _FAR * self.multiplier * _replaced(recipe))
            return Form([Field(name, array.shape, limit) for name, array in sorted(recipe.initial().items())], clients)
        width, classes = recipe.feature_size(), recipe.classes
        sums = private_sums(recipe.settings, self.multiplier, width)
        shapes: dict[str, tuple[int, ...]] = {"class_counts": (classes,), "zero_frequencies": (width,)}
        for kind in ("", "distorted_") if has_copies else ("",):
            shapes |= {f"{kind}class_feature_sums": (classes, width), f"{kind}{SCATTER}": (width, width)}
        noise = _FAR * self.multiplier * (math.sqrt(len(shapes)) if sums.bound is None else sums.bound)
        most = float(most_samples) if sums.bound is None else sums.bound
        return Form([Field(name, shape, most + noise) for name, shape in sorted(shapes.items())], clients)

    def of_update(self, recipe: Recipe, shared: Weights, update: Update, client: int, round_: int) -> dict[str, Floats]:
        """Return a client's step, clipped and with its part of the noise."""
        settings = recipe.settings
        steps = {
            name: np.asarray(array, np.float64) - shared.get(name, np.float64(0))
            for name, array in sorted(update.upload.items())
        }
        length = math.sqrt(sum(float(np.vdot(step, step)) for step in steps.values()))
        factor = min(1.0, settings.update_clip / max(length, 1e-300))
        deviation = self.multiplier * settings.update_clip * _replaced(recipe) / math.sqrt(self.threshold)
        rng = noise_generator(settings, "share", round_, client)
        return {name: step * factor + rng.normal(0.0, deviation, step.shape) for name, step in steps.items()}

    def of_summary(self, recipe: Recipe, description: Description, client: int) -> dict[str, Floats]:
        """Return a client's sums, in units of their sensitivity and with its part of the noise."""
        sums = private_sums(recipe.settings, self.multiplier, description.summary.dimensions)
        rng = noise_generator(recipe.settings, "share", "summary", client)
        return sums.noisy(sums.parts(description.summary), rng, share=1.0 / self.threshold)

    def released(self, recipe: Recipe, sums: Mapping[str, Floats], clients: int) -> Summary:
        """Return the total that a secure sum of private summaries comes to."""
        width = recipe.feature_size()
        return private_sums(recipe.settings, self.multiplier, width).released(dict(sums), clients)


def _replaced(recipe: Recipe) -> float:
    """Return by how many clips a unit can move a sum: a record turns one update into another."""
    return 1.0 if recipe.settings.privacy_unit == "client" else 2.0


def private_mean(shared: Weights, sums: Mapping[str, Floats], cohort: float) -> dict[str, NDArray[np.float32]]:
    """Return the weights that a secure sum of private steps comes to."""
    return {
        name: np.asarray(shared.get(name, np.float64(0)) + step / cohort, dtype=np.float32)
        for name, step in sums.items()
    }
