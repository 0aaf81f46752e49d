"""Private training: what one client can change, what is sent, what is written down, and what it comes to."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.sources.digits import load
from btfl.engines import LocalEngine, train_federation
from btfl.engines.accounting import Release, epsilon_of, make_plan
from btfl.engines.base import Broadcast, Job, perform
from btfl.engines.private import PrivateAveraging, drawn
from btfl.errors import InputError
from btfl.recipes.base import Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.trained import TrainedFederation

dp_accounting = pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")

SETTINGS = TrainingSettings.for_model(
    "mlp",
    rounds=2,
    local_epochs=1,
    finetune_epochs=0,
    personal_epochs=1,
    privacy="full",
    epsilon=8.0,
    privacy_noise="seeded",
    feature_radius=14.0,
)
SHARED = {"a": np.zeros(4, np.float32), "b": np.zeros((2, 3), np.float32)}


def federation() -> FederatedData:
    source = load(shift="none")
    return FederatedData(source, make_partition(source, PartitionSettings(clients=4, alpha=1.0), seed=1))


def train(changes: dict[str, Any], folder: Path | None = None, workers: int = 1) -> TrainedFederation:
    recipe = FedAvg(replace(SETTINGS, **changes), (8, 8, 1), 10)
    return train_federation(recipe, federation(), LocalEngine(workers), folder=folder)


def delta_of(multiplier: float, epsilon: float) -> float:
    """Of the Gaussian mechanism, in closed form (Balle and Wang, 2018)."""
    half = 1 / (2 * multiplier)
    return float(norm.cdf(half - epsilon * multiplier) - math.exp(epsilon) * norm.cdf(-half - epsilon * multiplier))


@pytest.mark.parametrize(("multiplier", "times"), [(1.0, 1), (4.0, 1), (10.0, 20), (30.0, 130)])
def test_gaussian_releases_cost_what_the_closed_form_says(multiplier: float, times: int) -> None:
    found = epsilon_of([Release("rounds", multiplier, times=times)], 1e-5)
    assert delta_of(multiplier / math.sqrt(times), found) == pytest.approx(1e-5, rel=0.02)


@pytest.mark.parametrize("sampling", [0.1, 0.5])
def test_sampled_releases_cost_what_the_library_says(sampling: float) -> None:
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(sampling, dp_accounting.GaussianDpEvent(2.0)), 12
    )
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(3.0), event]))
    releases = [Release("rounds", 2.0, sampling, 12), Release("summary", 3.0)]
    assert epsilon_of(releases, 1e-5) == accountant.get_epsilon(1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": "summary"},
        {},
        {"participation": 0.3, "privacy_unit": "record"},
        pytest.param({"participation": 0.3}, marks=pytest.mark.slow),
    ],
)
def test_a_plan_uses_its_budget_up_and_no_more(changes: dict[str, Any]) -> None:
    chosen = replace(SETTINGS, epsilon=2.0, **changes)
    plan = make_plan(chosen, 5)
    found = epsilon_of(plan.releases(5), chosen.delta)
    assert 1.95 <= found <= 2.0
    assert plan.sampling == (0.3 if changes.get("participation") and chosen.privacy_unit == "client" else 1.0)


def mean(uploads: list[np.ndarray], clip: float, multiplier: float = 0.0, seed: int = 0) -> np.ndarray:
    averaging = PrivateAveraging(SHARED, replace(SETTINGS, seed=seed), multiplier, clip, cohort=10.0, round_=1)
    for client, row in enumerate(uploads):
        averaging.add(client, Update({"a": row[:4], "b": row[4:].reshape(2, 3)}, samples=1 + 100 * client))
    weights = averaging.result().weights
    return np.concatenate([weights["a"], weights["b"].ravel()]).astype(np.float64)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.01, 1.0, 1e4]), clip=st.floats(0.1, 5.0))
def test_one_client_moves_the_sum_by_at_most_the_clip(seed: int, scale: float, clip: float) -> None:
    rows = list((np.random.default_rng(seed).normal(size=(5, 10)) * scale).astype(np.float32))
    moved = np.linalg.norm(mean(rows, clip) - mean(rows[:-1], clip)) * 10.0
    assert moved <= clip * (1 + 1e-5)
    if scale > 1:
        assert moved >= clip * (1 - 1e-5)


def test_the_noise_of_a_round_has_the_planned_deviation() -> None:
    draws = np.concatenate([mean([], 0.5, 3.0, seed) for seed in range(200)]) * 10.0
    assert draws.std() == pytest.approx(1.5, rel=0.06)
    assert abs(draws.mean()) < 0.15


def test_the_clip_adapts_towards_the_quantile() -> None:
    def clip_after(quantile: float) -> float:
        chosen = replace(SETTINGS, clip_quantile=quantile)
        averaging = PrivateAveraging(SHARED, chosen, 1e-6, 1.0, cohort=4.0, round_=1)
        for client in range(4):
            averaging.add(client, Update({"a": np.full(4, client, np.float32), "b": SHARED["b"]}, samples=1))
        found = averaging.result().clip
        assert found is not None
        return found

    assert clip_after(0.9) > 1.0 > clip_after(0.1)  # one of the four updates is shorter than 1


def test_clients_are_drawn_independently() -> None:
    counts = [len(drawn(replace(SETTINGS, participation=0.3), 50, round_)) for round_ in range(200)]
    assert np.mean(counts) == pytest.approx(15, abs=1)
    assert np.var(counts) == pytest.approx(50 * 0.3 * 0.7, rel=0.35)
    assert drawn(SETTINGS, 7, 1) == list(range(7))


def test_neither_metrics_nor_counts_leave_a_client() -> None:
    recipe, data = FedAvg(SETTINGS, (8, 8, 1), 10), federation()
    update = perform(recipe, data, Broadcast(recipe.initial()), Job("train", 0, 1, {}))
    assert isinstance(update, Update)
    assert (update.samples, update.metrics) == (1, {})


@pytest.mark.parametrize("privacy", ["full", "summary"])
def test_a_run_repeats_and_keeps_its_account(privacy: str, tmp_path: Path) -> None:
    trained = train({"privacy": privacy}, tmp_path)
    assert trained.digest() == train({"privacy": privacy}, workers=2).digest()
    account = json.loads((tmp_path / "privacy.json").read_text())
    rounds = ["round 1", "round 2"] if privacy == "full" else []
    assert [one["what"] for one in account["releases"]] == [*rounds, "summary"]
    assert account["promise"]["epsilon"] == 8.0
    assert trained.client(0).bundle.metadata["privacy"] == account["promise"]
    assert trained.total is not None
    assert trained.total.calibration is None
    spent = epsilon_of([Release("", one["multiplier"], one["sampling"]) for one in account["releases"]], 1e-5)
    assert 7.8 <= spent <= 8.0


def test_secret_noise_does_not_repeat() -> None:
    one, other = (train({"privacy": "summary", "privacy_noise": "secret"}).total for _ in range(2))
    assert one is not None
    assert other is not None
    assert not np.array_equal(one.arrays["class_counts"], other.arrays["class_counts"])


def test_a_defence_that_looks_at_the_data_is_refused() -> None:
    with pytest.raises(InputError, match="do not go together"):
        replace(SETTINGS, defence="median")


def test_the_settings_of_privacy_are_listed_where_runs_start_from_others() -> None:
    from btfl.recipes.privacy import PrivacySettings
    from btfl.runs.start import PRIVACY

    assert {each.name for each in PrivacySettings.knobs()} == PRIVACY
