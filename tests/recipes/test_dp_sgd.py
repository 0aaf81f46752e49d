"""DP-SGD within a client: what a record can change in a step, the noise that hides it, and what is counted for it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from btfl.data.source import Samples
from btfl.errors import InputError
from btfl.models import Network, build
from btfl.models.inputs import to_tensor
from btfl.recipes.dp_sgd import AT_ONCE, poisson_batch, train_records
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.noise_plan import epsilon_of, make_plan
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import Optimiser, TrainingSettings
from btfl.recipes.training import make_optimiser, plain_loss

dp_accounting = pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")
pytest.importorskip("opacus", reason="the extra `privacy` is not installed")

PRIVATE: dict[str, Any] = {
    "privacy": "full",
    "privacy_unit": "record",
    "privacy_mechanism": "dp-sgd",
    "privacy_noise": "seeded",
    "client_samples": 30,
}
ONE_STEP = TrainingSettings.for_model(
    "mlp", local_epochs=1, learning_rate=1.0, momentum=0.0, weight_decay=0.0, batch=30, **PRIVATE
)


def samples(count: int, seed: int = 0, scale: float = 1.0) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples((rng.normal(size=(count, 6)) * scale).astype(np.float32), rng.integers(0, 3, count))


def moved(chosen: TrainingSettings, data: Samples, multiplier: float = 0.0, round_: int = 1) -> np.ndarray:
    """Return how far one round moves the weights of a small perceptron."""
    network = build("mlp", data.values.shape[1:], 3, 0, hidden=5)
    before = [weight.detach().clone() for weight in network.parameters()]
    train_records(network, data, chosen, plain_loss(chosen), multiplier, round_, client=0)
    steps = [weight.detach() - old for weight, old in zip(network.parameters(), before, strict=True)]
    return np.concatenate([step.double().numpy().ravel() for step in steps])


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e3, 1e30, 3e38]), clip=st.sampled_from([0.1, 1.0, 5])
)
def test_one_record_moves_the_sum_of_a_step_by_at_most_the_clip(seed: int, scale: float, clip: float) -> None:
    everyone = samples(8, seed)
    everyone.values[-1] = np.copysign(scale, everyone.values[-1])
    without = Samples(everyone.values[:-1], everyone.labels[:-1])
    chosen = replace(ONE_STEP, record_clip=clip)
    distance = np.linalg.norm(moved(chosen, everyone) - moved(chosen, without)) * chosen.batch
    assert distance <= clip * (1 + 1e-5) + 1e-4  # weights are rounded to float32
    if scale == 1e3 and clip < 5:
        assert distance >= 0.99 * clip


def test_the_noise_of_a_step_has_the_planned_deviation_also_where_no_record_is_drawn() -> None:
    chosen = replace(ONE_STEP, record_clip=0.5)
    nobody = np.concatenate([moved(chosen, samples(0), 3.0, round_) for round_ in range(1, 31)]) * chosen.batch
    assert nobody.std() == pytest.approx(3.0 * 0.5, rel=0.03)
    assert abs(nobody.mean()) < 0.05
    noise = (moved(chosen, samples(20), 3.0) - moved(chosen, samples(20))) * chosen.batch
    assert noise.std() == pytest.approx(3.0 * 0.5, rel=0.12)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_without_noise_and_with_a_long_clip_it_is_plain_training(optimiser: Optimiser) -> None:
    count = AT_ONCE + 6  # a batch in two parts
    rng = np.random.default_rng(1)
    data = Samples(rng.integers(0, 255, (count, 16, 16, 1), np.uint8), rng.integers(0, 3, count))
    chosen = replace(
        ONE_STEP, batch=count, client_samples=count, local_epochs=3, record_clip=1e6, learning_rate=0.01, momentum=0.9
    )
    chosen = replace(chosen, optimiser=optimiser, weight_decay=0.01, augment=False, feature_l1=0.01)
    private, plain = (
        build("cnn", (16, 16, 1), 3, 0).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for _ in range(2)
    )
    train_records(private, data, chosen, plain_loss(chosen), 0.0, 1, client=0)
    steps = make_optimiser(chosen, plain.parameters())
    for _ in range(3):
        steps.zero_grad()
        features = plain.features(to_tensor(data.values))
        loss = plain_loss(chosen)(features, plain.head(features), torch.from_numpy(data.labels))
        loss.backward()  # type: ignore[no-untyped-call]
        steps.step()
    for (name, one), other in zip(private.named_parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=2e-5), name
    assert not hasattr(private.head.weight, "grad_sample")


def test_each_record_is_drawn_independently_for_every_step() -> None:
    sizes: list[int] = []

    def counting(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        sizes.append(len(labels))
        return plain_loss(chosen)(features, logits, labels)

    chosen = replace(ONE_STEP, batch=6, local_epochs=40)  # a fifth of the records, in 200 steps
    network = build("mlp", (6,), 3, 0, hidden=5)
    train_records(network, samples(50), chosen, counting, 0.0, 1, client=0)
    assert len(sizes) == pytest.approx(200, abs=2)  # no record at all is rare: the loss is not asked then
    assert np.mean(sizes) == pytest.approx(10, abs=0.8)
    assert np.var(sizes) == pytest.approx(8, rel=0.35)
    drawn = np.array([np.isin(np.arange(4), poisson_batch(4, 0.3, np.random.default_rng(k))) for k in range(2000)])
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.08


def test_batches_and_noise_are_secret_unless_a_simulation_is_asked_for() -> None:
    secret = replace(ONE_STEP, privacy_noise="secret")
    assert not np.array_equal(moved(secret, samples(20), 1.0), moved(secret, samples(20), 1.0))
    half = replace(secret, batch=15)
    assert not np.array_equal(moved(half, samples(20)), moved(half, samples(20)))
    assert np.array_equal(moved(ONE_STEP, samples(20), 1.0), moved(ONE_STEP, samples(20), 1.0))


def test_all_steps_of_all_rounds_and_the_summary_cost_what_the_library_says() -> None:
    chosen = replace(ONE_STEP, batch=12, local_epochs=2, epsilon=3.0)  # 2 x ceil(30 / 12) steps with 12 / 30
    plan = make_plan(chosen, 5)
    assert plan.training is not None
    gaussian = dp_accounting.GaussianDpEvent
    steps = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(12 / 30, gaussian(plan.training)), 5 * 2 * math.ceil(30 / 12)
    )
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.ComposedDpEvent([gaussian(plan.summary), steps]))
    found = accountant.get_epsilon(chosen.delta)
    assert epsilon_of(plan.releases(5), chosen.delta) == found
    assert 2.94 <= found <= 3.0


def test_a_batch_of_all_records_is_counted_without_sampling() -> None:
    plan = make_plan(replace(ONE_STEP, epsilon=2.0), 10)
    assert plan.training is not None
    assert (plan.sampling, plan.steps) == (1.0, 1)
    together = math.sqrt(10 / plan.training**2 + 1 / plan.summary**2)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(1 / together))
    assert 1.95 <= accountant.get_epsilon(1e-5) <= 2.0


def with_batch_norm(sample_shape: tuple[int, ...], classes: int) -> Network:
    return Network(nn.Sequential(nn.Linear(sample_shape[0], 8), nn.BatchNorm1d(8), nn.ReLU()), 8, classes)


class Centred(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values - values.mean(dim=0)


def that_mixes(sample_shape: tuple[int, ...], classes: int) -> Network:
    return Network(nn.Sequential(nn.Linear(sample_shape[0], 8), Centred()), 8, classes)


@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        (f"{__name__}:with_batch_norm", (6,), "its layer extractor.1 .BatchNorm1d. mixes the samples"),
        (f"{__name__}:that_mixes", (6,), "depends on the others in the batch"),
        ("cct4", (8, 8, 3), "switch off its dropout"),
    ],
)
def test_a_model_whose_samples_cannot_be_told_apart_is_refused(model: str, shape: tuple[int, ...], said: str) -> None:
    recipe = FedAvg(replace(ONE_STEP, model=model), shape, 3)
    with pytest.raises(InputError, match=said):
        recipe.initial()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy_unit": "client"}, "goes with privacy=full and privacy_unit=record"),
        ({"privacy": "summary"}, "goes with privacy=full and privacy_unit=record"),
        ({"client_samples": None}, "set client_samples to a number that everyone may know"),
        ({"clip_quantile": 0.5}, "Leave the quantile out"),
        ({"precision": "bf16"}, "leave precision at fp32"),
        ({"compile": True}, "compile at false"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(ONE_STEP, **changes)


@pytest.mark.parametrize("name", ["balanced", "fedrep", "pfedfda", "feddbe"])
def test_a_recipe_that_uploads_more_than_has_noise_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="only fedavg and ditto can"):
        make_recipe(name, ONE_STEP, (8, 8, 1), 10)
    assert make_recipe("ditto", ONE_STEP, (8, 8, 1), 10).name == "ditto"
