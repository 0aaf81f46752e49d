"""FedTHE: its weights follow entropy and feature distance, and are where its own objective is least."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.softmax import log_softmax
from btfl.errors import BtflError
from btfl.methods.fedthe import FedThe, Objective, minimise
from btfl.methods.registry import find_method
from btfl.runs.client import DeployedClient

Floats = NDArray[np.float64]

LOCAL, EVERYONE = np.array([4.0, 0.0, 0.0]), np.array([0.0, 4.0, 0.0])


def client(
    global_head: Any = ((0.0, 3.0, 0.0), (3.0, 0.0, 0.0)), personal_head: Any = ((3.0, 0.0, 0.0), (0.0, 3.0, 0.0))
) -> DeployedClient:
    """A client whose features lie around LOCAL, in a federation whose features lie around EVERYONE.

    The heads disagree on both, unless others are given.
    """
    spread = np.array([[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]])
    likelihood = DiscretisedLikelihood(np.full(3, 0.5), 2)
    statistics = {
        "train_features": LOCAL + spread,
        "global_class_counts": np.array([6.0, 4.0]),
        "global_class_feature_sums": np.array([4 * EVERYONE, 6 * EVERYONE]),
    }
    heads = np.asarray(global_head), np.asarray(personal_head)
    return DeployedClient(ClientBundle(*heads, likelihood, likelihood, 0.5, 0.5, statistics))


def random_objective(samples: int, seed: int = 0, classes: int = 5) -> Objective:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, samples, classes)) * rng.uniform(0.3, 4.0, size=(2, samples, 1))
    agree = rng.random((samples, 1)) < 0.5
    return Objective(one, np.where(agree, 0.5 * (one + other), other), *rng.uniform(0.0, 5.0, size=(2, samples)))


@given(st.integers(0, 10_000), st.floats(0.01, 0.99))
def test_the_slope_is_the_derivative_of_the_value(seed: int, e: float) -> None:
    objective, step = random_objective(20, seed), 1e-6
    at = np.full(20, e)
    numeric = (objective.value(at + step) - objective.value(at - step)) / (2 * step)
    np.testing.assert_allclose(objective.slope(at), numeric, rtol=1e-5, atol=1e-7)


def test_it_takes_the_steps_that_torchs_adam_takes_on_two_weights_under_a_softmax() -> None:
    # The published form: two weights a sample, one optimiser for the batch, the batch's mean as the loss.
    objective = random_objective(32)
    by_global, by_personal = torch.from_numpy(objective.by_global), torch.from_numpy(objective.by_personal)
    to_global, to_local = torch.from_numpy(objective.to_global), torch.from_numpy(objective.to_local)
    similarity = torch.nn.functional.cosine_similarity(by_global.softmax(1), by_personal.softmax(1), dim=1)
    weights = torch.ones(32, 2, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=0.1)
    for _ in range(20):
        shares = weights.softmax(1)
        log_p = (shares[:, :1] * by_global + shares[:, 1:] * by_personal).log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        alignment = shares[:, 0] * to_global + shares[:, 1] * to_local
        adam.zero_grad()
        (similarity * entropy + (1 - similarity) * alignment).mean().backward()  # type: ignore[no-untyped-call]
        adam.step()
    expected = weights.detach().softmax(1)[:, 0].numpy()
    np.testing.assert_allclose(minimise(objective, 20, 0.1), expected, atol=1e-5)  # Adam's epsilon meets the mean


def brute_force(objective: Objective, points: int = 2001) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the best e of a grid over [0, 1], and where it is the only place from which all ways lead up."""
    grid = np.linspace(0.0, 1.0, points)
    values = np.stack([objective.value(np.full(len(objective.to_global), e)) for e in grid])
    turns = np.diff(np.sign(np.diff(values, axis=0)), axis=0)
    best: Floats = grid[values.argmin(axis=0)]
    one_valley: NDArray[np.bool_] = np.all(turns >= 0, axis=0)
    return best, one_valley


def test_with_many_steps_it_ends_where_a_brute_force_search_does() -> None:
    objective = random_objective(500, seed=4)
    best, one_valley = brute_force(objective)
    found = minimise(objective, 3000, 0.1)
    interior = one_valley & (best > 0.02) & (best < 0.98)
    assert one_valley.sum() > 300
    assert interior.sum() >= 10
    assert (one_valley & (best == 0)).sum() > 50
    assert (one_valley & (best == 1)).sum() > 50
    np.testing.assert_allclose(found[one_valley], best[one_valley], atol=0.01)


def test_with_its_twenty_steps_it_comes_close() -> None:
    objective = random_objective(500, seed=4)
    best, one_valley = brute_force(objective)
    found = minimise(objective, 20, 0.1)
    # Twenty steps of 0.1 reach 0.98 at most.
    assert found.min() > 0.017
    assert found.max() < 0.983
    assert np.abs(found - best)[one_valley].max() < 0.1
    begun = objective.value(np.full(500, 0.5))
    gained, possible = begun - objective.value(found), begun - objective.value(best)
    assert gained[one_valley].sum() > 0.9 * possible[one_valley].sum()


def test_two_unsure_heads_that_agree_on_one_class_are_best_mixed() -> None:
    # Each wavers between the first class and another one; only together are they sure.
    objective = wavering(to_global=1.0, to_local=1.0)
    best, _ = brute_force(objective)
    assert best[0] == pytest.approx(0.5, abs=1e-3)
    assert minimise(objective, 20, 0.1)[0] == pytest.approx(0.5, abs=1e-3)


def test_the_further_from_everyones_features_the_less_the_global_head_weighs() -> None:
    distances = np.linspace(0.8, 1.2, 9)
    found = [minimise(wavering(distance, to_local=1.0), 3000, 0.1)[0] for distance in distances]
    best = [brute_force(wavering(distance, to_local=1.0))[0][0] for distance in distances]
    np.testing.assert_allclose(found, best, atol=1e-3)
    assert (np.diff(found) < -0.005).all()


def wavering(to_global: float, to_local: float) -> Objective:
    one, other = np.array([[10.0, 10.0, 0.0]]), np.array([[10.0, 0.0, 10.0]])
    return Objective(one, other, np.array([to_global]), np.array([to_local]))


def test_where_the_heads_disagree_the_nearer_features_head_wins() -> None:
    method = FedThe(client())
    for z, towards_global in ((LOCAL, False), (EVERYONE, True)):
        method.reset()
        method.predict(z[None])
        trace = method.trace
        assert trace["lambda_s"][0] < 0.05
        assert trace["e"][0] > 0.95 if towards_global else trace["e"][0] < 0.05


@pytest.mark.parametrize("sure", ["global", "personal"])
def test_where_the_heads_agree_the_surer_one_wins_whatever_the_features_say(sure: str) -> None:
    strong, weak = ((2.0, 2.0, 0.0), (0.0, 0.0, 0.0)), ((0.9, 0.9, 0.0), (0.0, 0.0, 0.0))
    method = FedThe(client(strong, weak) if sure == "global" else client(weak, strong))
    against = LOCAL if sure == "global" else EVERYONE
    method.predict(against[None])
    assert method.trace["lambda_s"][0] > 0.999
    assert method.trace["e"][0] > 0.9 if sure == "global" else method.trace["e"][0] < 0.1


def test_it_mixes_logits_and_begins_at_one_half() -> None:
    method, z = FedThe(client(), steps=0), np.array([[1.0, 0.3, 2.0]])
    bundle = method.client.bundle
    middle = 0.5 * (bundle.global_head.logits(z) + bundle.personal_head.logits(z))
    np.testing.assert_allclose(method.predict(z), np.exp(log_softmax(middle)), atol=1e-12)
    np.testing.assert_array_equal(method.trace["e"], [0.5])


def history_of(method: FedThe) -> Floats:
    return np.array(method.state["history"])


def stream(samples: int = 97) -> Floats:
    return np.maximum(np.random.default_rng(5).normal(1.0, 1.5, size=(samples, 3)), 0.0)


def run(method: FedThe, features: Floats, batch: int) -> Floats:
    weights = []
    for start in range(0, len(features), batch):
        answers = method.predict(features[start : start + batch])
        np.testing.assert_allclose(answers.sum(axis=1), 1.0)
        weights.append(method.trace["e"])
    return np.concatenate(weights)


def test_it_does_not_matter_how_the_stream_is_cut_into_batches() -> None:
    whole = run(FedThe(client()), stream(), 97)
    for batch in (1, 32):
        np.testing.assert_allclose(run(FedThe(client()), stream(), batch), whole, atol=1e-9)


def test_the_history_is_a_moving_average_that_every_sample_enters() -> None:
    method = FedThe(client(), alpha=0.25)
    for z in ([8.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]):
        method.predict(np.array([z]))
    np.testing.assert_allclose(history_of(method), [4.5, 0.75, 1.0])


def test_the_releases_history_stands_still_at_a_batch_of_one() -> None:
    method = FedThe(client(), alpha=0.25, history="release")
    for z in ([8.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]):
        method.predict(np.array([z]))
    np.testing.assert_allclose(history_of(method), [8.0, 0.0, 0.0])
    method.predict(np.array([[0.0, 9.0, 0.0], [0.0, 4.0, 0.0]]))  # the first of a later batch does not enter
    np.testing.assert_allclose(history_of(method), [6.0, 1.0, 0.0])


def test_what_came_before_sways_the_weights_until_it_is_reset() -> None:
    method, z = FedThe(client()), (0.55 * LOCAL + 0.45 * EVERYONE)[None]
    fresh = run(method, z, 1)
    method.reset()
    run(method, np.repeat(EVERYONE[None], 20, axis=0), 32)
    after_external = run(method, z, 1)
    method.reset()
    again = run(method, z, 1)
    assert fresh[0] < 0.1
    assert after_external[0] > 0.9
    np.testing.assert_array_equal(again, fresh)


def test_it_runs_on_fedavgs_weights_when_it_is_asked_to() -> None:
    assert find_method("fedthe").trained_with == "balanced"
    assert find_method("fedthe-on-fedavg").trained_with == "fedavg"
    assert find_method("fedthe-on-fedavg[steps=3,test_batch=1]").trained_with == "fedavg"


@pytest.mark.parametrize("wrong", ["steps=-1", "steps=2.5", "alpha=2", "beta=-0.1", "learning_rate=0", "history=none"])
def test_a_setting_out_of_range_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(BtflError, match=wrong.partition("=")[0]):
        find_method(f"fedthe[{wrong}]").build(client())


def test_a_bundle_without_feature_means_is_refused() -> None:
    bare = client().bundle
    without = ClientBundle(
        bare.global_head, bare.personal_head, bare.local_likelihood, bare.global_likelihood, 0.5, 0.5
    )
    with pytest.raises(BtflError, match="train_features"):
        FedThe(DeployedClient(without))
