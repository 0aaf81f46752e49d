"""Noise in parts: what the fewest clients of a secure sum add is all the noise of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from btfl.core.summary import Summary
from btfl.engines.noisy_sums import NoiseShare
from btfl.recipes.base import Description, Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings


def settings_for(**changes: Any) -> TrainingSettings:
    chosen = {"privacy": "full", "secure": True, "privacy_noise": "seeded", "update_clip": 2.0, "feature_radius": 10.0}
    return TrainingSettings.for_model("mlp", **chosen, **changes)


THRESHOLD = 4


@pytest.mark.parametrize(("unit", "factor"), [("client", 1.0), ("record", 2.0)])
def test_the_fewest_clients_add_all_the_noise(unit: str, factor: float) -> None:
    recipe = FedAvg(settings_for(privacy_unit=unit), (8, 8, 1), 10)
    share, shared = NoiseShare(3.0, THRESHOLD), recipe.initial()
    still = Update(shared, samples=1)
    total = {name: np.zeros(array.shape) for name, array in shared.items()}
    for client in range(THRESHOLD):
        for name, step in share.of_update(recipe, shared, still, client, 1).items():
            total[name] += step
    noise = np.concatenate([array.ravel() for array in total.values()])
    assert noise.std() == pytest.approx(3.0 * 2.0 * factor, rel=0.03)


def test_a_step_is_clipped_before_noise_and_fits_the_form() -> None:
    recipe = FedAvg(settings_for(), (8, 8, 1), 10)
    share, shared = NoiseShare(1e-9, THRESHOLD), recipe.initial()
    far = Update({name: array + np.float32(5) for name, array in shared.items()}, samples=1)
    steps = share.of_update(recipe, shared, far, 0, 1)
    assert np.sqrt(sum((step**2).sum() for step in steps.values())) == pytest.approx(2.0, rel=1e-5)
    form = share.form(recipe, "train", 10, 1000, has_copies=True)
    decoded = form.decode(form.encode(steps))
    for name, step in steps.items():
        np.testing.assert_allclose(decoded[name], step, atol=1e-12)


@pytest.mark.parametrize("unit", ["client", "record"])
def test_the_fewest_clients_add_all_the_noise_of_a_summary(unit: str) -> None:
    recipe = FedAvg(settings_for(privacy_unit=unit, client_bound=7.0), (8, 8, 1), 10)
    width, share = recipe.feature_size(), NoiseShare(3.0, THRESHOLD)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, width))
    description = Description(Summary.of(features, rng.integers(0, 10, 20), 10, distorted=features))
    quiet = NoiseShare(1e-12, THRESHOLD).of_summary(recipe, description, 0)
    noise = np.zeros((10, width))
    for client in range(THRESHOLD):
        noisy = share.of_summary(recipe, description, client)
        noise += noisy["class_feature_sums"] - quiet["class_feature_sums"]
    expected = 3.0 * (7.0 if unit == "client" else np.sqrt(6))
    assert noise.std() == pytest.approx(expected, rel=0.1)
    form = share.form(recipe, "describe", 10, 1000, has_copies=True)
    assert set(form.decode(form.encode(noisy))) == set(noisy)
