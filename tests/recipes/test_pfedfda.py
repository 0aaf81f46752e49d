"""pFedFDA's rounds: Gaussian heads that nobody trains, and estimates that are averaged with the extractor."""

from __future__ import annotations

import numpy as np
import pytest

from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.methods.pfedfda import COVARIANCE, MEANS
from btfl.methods.pfedfda import PFedFda as Method
from btfl.models.forward import extract
from btfl.recipes.pfedfda import PFedFda, PFedFdaRelease
from btfl.recipes.settings import TrainingSettings
from btfl.runs.trained import TrainedFederation
from small import digits

SETTINGS = TrainingSettings.for_model("mlp", rounds=4, local_epochs=1)
ALL = [f"auxiliary.{MEANS}", f"auxiliary.{COVARIANCE}"]


@pytest.fixture(scope="module")
def trained() -> TrainedFederation:
    return train_federation(PFedFdaRelease(SETTINGS, (8, 8, 1), 10), digits(), LocalEngine())


def test_the_server_has_an_extractor_and_gaussians_and_no_head(trained: TrainedFederation) -> None:
    assert set(ALL) <= set(trained.shared)
    assert not [name for name in trained.shared if "head" in name]


def test_a_round_uploads_a_mean_between_everyones_and_the_own() -> None:
    recipe, own = PFedFda(SETTINGS, (8, 8, 1), 10), digits().of(0, 1)
    shared = recipe.initial()
    update = recipe.train(1, shared, {}, own)
    b = update.metrics["beta_means"]
    assert 0 <= b <= 1
    absent = np.setdiff1d(np.arange(10), own.train.labels)
    np.testing.assert_allclose(update.upload[ALL[0]][absent], shared[ALL[0]][absent], rtol=1e-6)
    features = extract(recipe.received(update.upload), own.train.values)
    label = int(np.bincount(own.train.labels).argmax())
    wanted = b * features[own.train.labels == label].mean(axis=0) + (1 - b) * shared[ALL[0]][label]
    np.testing.assert_allclose(update.upload[ALL[0]][label], wanted, atol=1e-4)
    assert any(np.abs(update.upload[name] - shared[name]).max() > 1e-4 for name in shared if name.startswith("extr"))
    assert update.private == {}


def test_the_extractor_is_trained_under_the_gaussian_head() -> None:
    """With everyone's means all the same the head says nothing, so there is nothing to learn."""
    recipe, own = PFedFda(TrainingSettings.for_model("mlp", weight_decay=0.0), (8, 8, 1), 10), digits().of(0, 1)
    shared = {**recipe.initial()}
    shared[ALL[0]] = np.ones_like(shared[ALL[0]])
    update = recipe.train(1, shared, {}, own)
    for name in shared:
        if name.startswith("extractor."):
            np.testing.assert_allclose(update.upload[name], shared[name], atol=1e-4)


def test_the_bundles_head_is_the_methods_and_it_learns(trained: TrainedFederation) -> None:
    right = []
    for number in range(4):
        client = trained.client(number)
        method = Method(client, release=True)
        np.testing.assert_allclose(method.head.weight, client.bundle.personal_head.weight, atol=1e-6)
        statistics = client.bundle.statistics
        answers = method.predict(statistics["validation_features"]).argmax(1)
        right.append((answers == statistics["validation_labels"]).mean())
    assert np.mean(right) > 0.8
