"""Local only, Ditto, FedBABU and FedDBE: what is shared, what stays, and what each idea does to the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from btfl.data.source import Samples
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.methods.registry import find_method
from btfl.models import Network, to_arrays
from btfl.models.forward import extract, logits
from btfl.models.inputs import to_tensor
from btfl.recipes.ditto import MODEL, Ditto
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.fedbabu import FedBabu
from btfl.recipes.feddbe import MEAN, OFFSET, FedDbe
from btfl.recipes.local import Local
from btfl.recipes.parts import extractor_of, head_of
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import first_network, trained_copy
from btfl.runs.trained import TrainedFederation
from small import digits

SHAPE = (8, 8, 1)
SETTINGS = TrainingSettings.for_model("mlp", rounds=2, local_epochs=1)


def distance(one: object, other: object) -> float:
    pairs = [(one[name], other[name]) for name in other]  # type: ignore[index, attr-defined]
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in pairs)))


def gradients(network: Network, data: Samples) -> dict[str, np.ndarray]:
    """Return the gradient of the mean cross-entropy over all samples, by parameter."""
    network.zero_grad()
    value = torch.nn.functional.cross_entropy(network(to_tensor(data.values)), torch.from_numpy(data.labels))
    value.backward()  # type: ignore[no-untyped-call]
    return {key: one.grad.numpy().copy() for key, one in network.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("name", ["local", "ditto", "fedbabu", "feddbe", "pfedfda-release"])
def test_it_is_saved_and_is_the_same_in_two_processes(name: str, tmp_path: Path) -> None:
    recipe = make_recipe(name, SETTINGS, SHAPE, 10)
    one = train_federation(recipe, digits(), LocalEngine(), folder=tmp_path / "one")
    two = train_federation(recipe, digits(), LocalEngine(2), folder=tmp_path / "two")
    assert one.digest() == two.digest()
    assert TrainedFederation.load(tmp_path / "one" / "final").digest() == one.digest()


class TestLocal:
    def test_nothing_about_the_data_is_uploaded(self) -> None:
        recipe, own = Local(SETTINGS, SHAPE, 10), digits().of(0, 1)
        update = recipe.train(1, {}, {}, own)
        assert update.upload == {}
        arrays = recipe.describe({}, update.private, own).summary.arrays
        assert arrays["samples"] == 1
        assert not arrays["class_feature_sums"].any()

    def test_a_step_by_hand(self) -> None:
        """One batch, plain SGD, from weights that every client begins with."""
        settings = TrainingSettings.for_model(
            "mlp", local_epochs=1, momentum=0.0, weight_decay=0.0, batch=10_000, learning_rate=0.1
        )
        recipe, own = Local(settings, SHAPE, 10), digits().of(1, 1)
        stepped, network = recipe.train(1, {}, {}, own).private, first_network(recipe)
        begun = to_arrays(network)
        for key, gradient in gradients(network, own.train).items():
            np.testing.assert_allclose(stepped[key], begun[key] - 0.1 * gradient, atol=1e-5)

    def test_a_client_is_what_it_would_be_without_the_others(self) -> None:
        recipe = Local(SETTINGS, SHAPE, 10)
        trained = train_federation(recipe, digits(), LocalEngine())
        private = recipe.train(1, {}, {}, digits().of(2, 1)).private
        alone = recipe.train(2, {}, private, digits().of(2, 2)).private
        kept = trained.client(2).networks["personal"]
        for key, array in alone.items():
            np.testing.assert_array_equal(kept[key], array)
        own = digits().of(2, 2)
        features = extract(trained.client(2).extractor(), own.validation.values).astype(np.float64)
        answers = find_method("local").build(trained.client(2)).predict(features).argmax(1)
        assert (answers == own.validation.labels).mean() > 0.8
        bundle = trained.client(2).bundle
        assert bundle.statistics["global_class_counts"].sum() == len(own.train)


class TestDitto:
    def test_its_global_model_is_fedavgs(self) -> None:
        recipe, own = Ditto(SETTINGS, SHAPE, 10), digits().of(0, 1)
        shared = recipe.initial()
        update, plain = recipe.train(1, shared, {}, own), FedAvg(SETTINGS, SHAPE, 10).train(1, shared, {}, own)
        for key, array in plain.upload.items():
            np.testing.assert_array_equal(update.upload[key], array)
        assert not [key for key in update.upload if key.startswith(MODEL)]
        assert [key for key in update.private if key.startswith(MODEL)]

    def test_lambda_holds_the_personal_model_to_the_one_received(self) -> None:
        own, far = digits().of(0, 1), []
        for strength in (0.0, 1.0, 10.0):
            settings = TrainingSettings.for_model("mlp", local_epochs=1, momentum=0.0, ditto_lambda=strength)
            recipe = Ditto(settings, SHAPE, 10)
            shared = recipe.initial()
            private = recipe.train(1, shared, {}, own).private
            model = {key.removeprefix(MODEL): value for key, value in private.items() if key.startswith(MODEL)}
            far.append(distance(model, shared))
        assert far[0] > 1.1 * far[1] > 1.1 * far[2]

    def test_a_step_by_hand(self) -> None:
        """One batch, plain SGD: v' = v - rate (gradient of the loss at v + lambda (v - w))."""
        settings = TrainingSettings.for_model(
            "mlp", local_epochs=1, momentum=0.0, weight_decay=0.0, batch=10_000, learning_rate=0.1, ditto_lambda=2.0
        )
        recipe, own = Ditto(settings, SHAPE, 10), digits().of(1, 1)
        shared = recipe.initial()
        v = {key: array + np.float32(0.01) for key, array in shared.items()}
        stepped = recipe.train(1, shared, {f"{MODEL}{key}": array for key, array in v.items()}, own).private
        for key, gradient in gradients(recipe.received(v), own.train).items():
            wanted = v[key] - 0.1 * (gradient + 2.0 * (v[key] - shared[key]))
            np.testing.assert_allclose(stepped[f"{MODEL}{key}"], wanted, atol=1e-5)

    def test_a_personal_model_that_diverges_stays_as_it_was(self, caplog: pytest.LogCaptureFixture) -> None:
        wild = TrainingSettings.for_model("mlp", local_epochs=1, learning_rate=3.0, ditto_lambda=10.0)
        recipe, own = Ditto(wild, SHAPE, 10), digits().of(1, 1)
        shared = recipe.initial()
        private = {f"{MODEL}{key}": array + np.float32(0.01) for key, array in shared.items()}
        update = recipe.train(1, shared, private, own)
        assert "client 1: training of its own model diverged" in caplog.text
        for key, array in private.items():
            np.testing.assert_array_equal(update.private[key], array)

    def test_the_method_answers_with_the_personal_model(self) -> None:
        trained = train_federation(Ditto(SETTINGS, SHAPE, 10), digits(), LocalEngine())
        client, own = trained.client(1), digits().of(1, 2)
        answers = find_method("ditto").build(client).predict(own.validation.values)
        wanted = logits(client.network("personal"), own.validation.values)
        np.testing.assert_array_equal(answers.argmax(1), wanted.argmax(1))
        assert distance(client.networks["personal"], trained.shared) > 0.1


class TestFedBabu:
    def test_the_head_is_never_trained_in_the_rounds_and_is_at_the_end(self) -> None:
        recipe = FedBabu(SETTINGS, SHAPE, 10)
        trained = train_federation(recipe, digits(), LocalEngine())
        first = to_arrays(first_network(recipe))
        np.testing.assert_array_equal(trained.shared["head.weight"], first["head.weight"])
        assert distance(trained.shared, extractor_of(first)) > 0.1
        tuned = trained.client(0).networks["finetuned"]
        assert distance(tuned, head_of(first)) > 0.05
        assert distance(tuned, extractor_of(trained.shared)) > 0.05

    def test_a_step_by_hand(self) -> None:
        """One batch, plain SGD: the body takes the step, and the head, which is not trained, does not."""
        settings = TrainingSettings.for_model(
            "mlp", local_epochs=1, momentum=0.0, weight_decay=0.0, batch=10_000, learning_rate=0.1
        )
        recipe, own = FedBabu(settings, SHAPE, 10), digits().of(1, 1)
        shared = recipe.initial()
        stepped = recipe.train(1, shared, {}, own).upload
        for key, gradient in gradients(recipe.received(shared), own.train).items():
            wanted = shared[key] if key.startswith("head.") else shared[key] - 0.1 * gradient
            np.testing.assert_allclose(stepped[key], wanted, atol=1e-5)

    def test_no_epoch_of_fine_tuning_leaves_the_global_model(self) -> None:
        settings = TrainingSettings.for_model("mlp", rounds=1, local_epochs=1, babu_epochs=0)
        trained = train_federation(FedBabu(settings, SHAPE, 10), digits(), LocalEngine())
        for key, array in trained.client(0).networks["finetuned"].items():
            np.testing.assert_array_equal(array, trained.shared[key])

    @pytest.mark.parametrize("rate", [1e30, 100.0])
    def test_fine_tuning_that_diverges_leaves_the_network_as_it_was(
        self, rate: float, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whether its weights are no longer numbers, or numbers that no answer can be computed with."""
        wild = TrainingSettings.for_model("mlp", rounds=1, learning_rate=rate)
        recipe, own = FedBabu(wild, SHAPE, 10), digits().of(1, 1)
        shared = recipe.initial()
        network = recipe.received(shared)
        kept = trained_copy(network, own, 1, wild, recipe.loss(own), "finetune", 1)
        assert all(np.isfinite(values).all() for values in to_arrays(network).values()) == (rate < 1e30)
        for key, array in shared.items():
            np.testing.assert_array_equal(kept[key], array)
        assert "client 1: training of its own model diverged" in caplog.text


def test_a_large_number_that_is_no_weight_is_no_divergence() -> None:
    """A network of a user's own may count its batches, or hold the variance of large inputs."""
    recipe, own = FedAvg(SETTINGS, SHAPE, 10), digits().of(1, 1)
    network = first_network(recipe)
    network.register_buffer("batches", torch.tensor(123_456.0))
    before = to_arrays(network)
    after = trained_copy(network, own, 1, SETTINGS, recipe.loss(own), "finetune", 1)
    assert distance(after, head_of(before)) > 0


class TestFedDbe:
    def test_everyones_mean_is_that_of_the_first_round_and_then_stays(self) -> None:
        recipe, data = FedDbe(SETTINGS, SHAPE, 10), digits()
        shared = recipe.initial()
        update = recipe.train(1, shared, {}, data.of(0, 1))
        features = extract(recipe.received(update.upload), data.of(0, 1).train.values)
        np.testing.assert_allclose(update.upload[MEAN], features.mean(axis=0), rtol=1e-4, atol=1e-5)
        later = recipe.train(2, update.upload, update.private, data.of(1, 2))
        np.testing.assert_array_equal(later.upload[MEAN], update.upload[MEAN])
        assert OFFSET not in update.upload
        assert np.abs(update.private[OFFSET]).max() > 1e-3

    def test_kappa_pulls_the_mean_feature_to_everyones(self) -> None:
        own, far = digits().of(0, 2), []
        for kappa in (0.0, 50.0):
            settings = TrainingSettings.for_model("mlp", local_epochs=3, momentum=0.0, dbe_kappa=kappa)
            recipe = FedDbe(settings, SHAPE, 10)
            shared = {**recipe.initial()}
            shared[MEAN] = np.full_like(shared[MEAN], 0.7)
            update = recipe.train(2, shared, {}, own)
            mean = extract(recipe.received(update.upload), own.train.values).mean(axis=0)
            far.append(np.abs(mean - 0.7).mean())
        assert far[1] < 0.7 * far[0]

    def test_both_heads_by_hand(self) -> None:
        trained = train_federation(FedDbe(SETTINGS, SHAPE, 10), digits(), LocalEngine())
        bundle = trained.client(0).bundle
        weight = bundle.global_head.weight
        np.testing.assert_allclose(weight, bundle.personal_head.weight)
        assert bundle.personal_head.bias is not None
        assert bundle.global_head.bias is None
        moved = bundle.personal_head.bias
        # W c for some vector c: in the span of the head's columns, and not zero.
        offset = np.linalg.lstsq(weight, moved, rcond=None)[0]
        np.testing.assert_allclose(weight @ offset, moved, atol=1e-8)
        assert np.abs(moved).max() > 1e-3
        z = bundle.statistic("validation_features")
        np.testing.assert_allclose(bundle.personal_head.logits(z), bundle.global_head.logits(z + offset), atol=1e-6)
