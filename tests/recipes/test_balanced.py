"""Balanced softmax, and the two private heads that stand on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from btfl.core.softmax import log_softmax
from btfl.data.federated import ClientData
from btfl.data.source import Samples
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.methods.registry import find_method
from btfl.models.forward import extract
from btfl.models.forward import logits as logits_of
from btfl.recipes.balanced import Balanced, balanced_loss
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import plain_loss
from btfl.runs.trained import TrainedFederation
from small import digits, train_small

SETTINGS = TrainingSettings.for_model("mlp", rounds=3, local_epochs=2)


@pytest.fixture(scope="module")
def trained() -> TrainedFederation:
    return train_small("balanced", rounds=3)


def random_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(3)
    logits = torch.randn(40, 4, generator=draws, requires_grad=True)
    return torch.rand(40, 8, generator=draws), logits, torch.randint(4, (40,), generator=draws)


@pytest.mark.parametrize("count", [0, 1, 250])
def test_with_equal_class_counts_it_is_the_plain_cross_entropy(count: int) -> None:
    features, logits, labels = random_batch()
    plain = plain_loss(SETTINGS)(features, logits, labels)
    balanced = balanced_loss(SETTINGS, np.full(4, count))(features, logits, labels)
    torch.testing.assert_close(balanced, plain, rtol=1e-6, atol=1e-6)


def test_it_keeps_the_pull_on_the_features_if_that_is_asked_for() -> None:
    settings = TrainingSettings(feature_l1=0.1)
    features, logits, labels = random_batch()
    plain = plain_loss(SETTINGS)(features, logits, labels)
    difference = balanced_loss(settings, np.full(4, 7))(features, logits, labels) - plain
    assert float(difference.detach()) == pytest.approx(0.1 * float(features.sum()) / len(features), rel=1e-4)


def test_the_best_constant_logits_say_nothing_of_the_label_mix() -> None:
    # With nothing to see but the label mix, the plain loss is least where the softmax repeats the mix, and the balanced
    # one where it is the same for all classes: the mix is in the counts already. (They are large, so that the one added
    # to each does not matter.)
    counts = np.array([9000, 900, 90])
    labels = torch.from_numpy(np.repeat(np.arange(3), counts))

    def best(loss_of_counts: NDArray[np.int64] | None) -> NDArray[np.float64]:
        logits = torch.zeros(3, requires_grad=True)
        loss = plain_loss(SETTINGS) if loss_of_counts is None else balanced_loss(SETTINGS, loss_of_counts)
        optimiser = torch.optim.LBFGS([logits], max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            value = loss(torch.zeros(1, 1), logits.expand(len(labels), 3), labels)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        return logits.detach().softmax(0).numpy().astype(np.float64)

    np.testing.assert_allclose(best(None), counts / counts.sum(), atol=1e-3)
    np.testing.assert_allclose(best(counts), np.full(3, 1 / 3), atol=5e-3)


def test_it_pulls_harder_towards_a_rare_class_than_the_plain_one() -> None:
    features, _, _ = random_batch()
    logits, rare = torch.zeros(1, 4, requires_grad=True), torch.tensor([3])
    pulls = {}
    for name, loss in (
        ("plain", plain_loss(SETTINGS)),
        ("balanced", balanced_loss(SETTINGS, np.array([500, 500, 500, 5]))),
    ):
        (pulls[name],) = torch.autograd.grad(loss(features[:1], logits, rare), logits)
    assert pulls["balanced"][0, 3] < pulls["plain"][0, 3] < 0


def test_a_class_the_client_has_never_seen_leaves_everything_finite() -> None:
    features, logits, labels = random_batch()
    counts = np.array([20, 20, 0, 0])
    loss = balanced_loss(SETTINGS, counts)(features, logits, labels % 2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


def test_the_global_model_favours_a_clients_common_classes_less_than_fedavgs() -> None:
    # One client alone, with two digits, one nine times as common: how much of its softmax does each model give to the
    # common one, where half of the samples are of either?
    pool = digits().source.pool
    rows = {digit: np.flatnonzero(pool.labels == digit) for digit in (3, 8)}
    part = np.concatenate([rows[3][:90], rows[8][:10]])
    own = Samples(pool.values[part], pool.labels[part])
    fair = np.concatenate([rows[3][100:150], rows[8][100:150]])
    shares = {}
    for kind in (FedAvg, Balanced):
        recipe = kind(TrainingSettings.for_model("mlp", rounds=1, local_epochs=1), (8, 8, 1), 10)
        update = recipe.train(1, recipe.initial(), {}, ClientData(0, own, own))
        network = recipe.received(update.upload)
        answers = np.exp(log_softmax(logits_of(network, pool.values[fair]).astype(np.float64)))
        shares[kind.name] = (answers[:, 3] / (answers[:, 3] + answers[:, 8])).mean()
    assert shares["balanced"] < shares["fedavg"] - 0.05


def test_no_private_head_is_uploaded_and_both_are_kept() -> None:
    recipe = Balanced(SETTINGS, (8, 8, 1), 10)
    update = recipe.train(1, recipe.initial(), {}, digits().of(0, 1))
    assert set(update.upload) == set(recipe.initial())
    assert set(update.private) == {"personal_head.weight", "rod_head.weight"}


def test_private_heads_do_not_move_the_global_model() -> None:
    # The upload does not depend on what the private heads are, nor on how long they are trained.
    uploads = []
    for epochs in (0, 3):
        settings = TrainingSettings.for_model("mlp", rounds=1, local_epochs=1, personal_epochs=epochs)
        recipe = Balanced(settings, (8, 8, 1), 10)
        uploads.append(recipe.train(1, recipe.initial(), {}, digits().of(0, 1)).upload)
    for name, array in uploads[0].items():
        np.testing.assert_array_equal(array, uploads[1][name])


def test_fedrods_head_begins_as_no_correction_at_all() -> None:
    settings = TrainingSettings.for_model("mlp", rounds=1, local_epochs=1, personal_epochs=0)
    trained = train_federation(Balanced(settings, (8, 8, 1), 10), digits(), LocalEngine())
    client = trained.client(0)
    features = client.bundle.statistics["train_features"].astype(np.float64)
    by_sum = find_method("fedrod").build(client).predict(features)
    np.testing.assert_allclose(by_sum, find_method("fedavg").build(client).predict(features), atol=1e-12)


def test_fedrods_head_steps_against_the_error_of_the_sum() -> None:
    # One step from zero, on all samples at once: the cross-entropy's gradient where the sum is the global model.
    settings = TrainingSettings("mlp", batch=10_000, learning_rate=0.5, weight_decay=0.0, augment=False)
    recipe, own = Balanced(settings, (8, 8, 1), 10), digits().of(0, 1)
    shared = train_small("balanced", rounds=3).shared
    network = recipe.received(shared)
    features, labels = extract(network, own.train.values).astype(np.float64), own.train.labels
    error = np.exp(log_softmax(features @ shared["head.weight"].T)) - np.eye(10)[labels]
    expected = -0.5 * error.T @ features / len(labels)
    found = recipe.personalise("final", network, {}, own)["rod_head.weight"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_fedrod_fits_the_clients_own_validation_samples_better_than_the_global_head(
    trained: TrainedFederation,
) -> None:
    likelihoods = {"fedavg": 0.0, "fedrod": 0.0}
    for number in range(4):
        client = trained.client(number)
        statistics = client.bundle.statistics
        features, labels = statistics["validation_features"], statistics["validation_labels"]
        for name in likelihoods:
            answers = find_method(name).build(client).predict(features.astype(np.float64))
            likelihoods[name] += float(np.log(answers[np.arange(len(labels)), labels]).mean()) / 4
    assert likelihoods["fedrod"] > likelihoods["fedavg"] + 0.05


def test_it_survives_being_saved(trained: TrainedFederation, tmp_path: Path) -> None:
    trained.save(tmp_path)
    again = TrainedFederation.load(tmp_path).client(2)
    rod = trained.client(2).bundle.statistics["rod_head.weight"]
    np.testing.assert_array_equal(again.bundle.statistics["rod_head.weight"], rod)
    assert np.abs(rod).max() > 0
