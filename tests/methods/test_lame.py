"""LAME: reaches the minimum of its objective, and lets neighbours in a batch agree."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

from btfl.core.heads import LinearHead
from btfl.core.softmax import log_softmax
from btfl.errors import InputError
from btfl.methods.heads import GlobalHead
from btfl.methods.lame import Lame, adjust, affinity, objective
from btfl.methods.registry import find_method
from btfl.runs.client import DeployedClient
from making import make_bundle, make_stream


def test_affinity_of_a_worked_example() -> None:
    degrees = np.deg2rad([0.0, 10.0, 30.0, 90.0])
    features = np.array([1.0, 5.0, 2.0, 3.0])[:, None] * np.stack([np.cos(degrees), np.sin(degrees)], 1)
    # By angle 0 and 1 are each other's nearest, 2 is nearest to 1 and 3 to 2, and neither is chosen back.
    expected = np.array([[0, 1, 0, 0], [1, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0.5, 0]])
    np.testing.assert_array_equal(affinity(features, 1), expected)
    np.testing.assert_array_equal(affinity(features, 5), 1.0 - np.eye(4))


@pytest.mark.parametrize("seed", range(5))
def test_it_reaches_what_a_brute_force_search_of_its_objective_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log_q = log_softmax(rng.normal(size=(4, 3)))
    w = affinity(rng.uniform(size=(4, 3)), 1)

    def at(free: np.ndarray) -> float:
        return objective(log_softmax(free.reshape(4, 3)), log_q, w)

    starts = [log_q.ravel(), *rng.normal(scale=3.0, size=(10, 12))]
    best = min((minimize(at, start, method="BFGS") for start in starts), key=lambda found: float(found.fun))
    found = adjust(log_q, w)
    assert objective(np.log(found), log_q, w) == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(found, np.exp(log_softmax(best.x.reshape(4, 3))), atol=1e-3)


def test_every_step_lowers_the_objective_from_the_heads_own_answers_on() -> None:
    rng = np.random.default_rng(3)
    log_q, w = log_softmax(rng.normal(size=(32, 10))), affinity(rng.uniform(size=(32, 8)), 5)
    assert objective(np.log(adjust(log_q, w)), log_q, w) < objective(log_q, log_q, w)


def test_an_unsure_sample_follows_its_sure_neighbours() -> None:
    sure, unsure = [4.0, 0.0], [0.0, 0.3]
    log_q = log_softmax(np.array([sure, sure, sure, unsure]))
    together = adjust(log_q, 1.0 - np.eye(4))
    assert np.exp(log_q[3]).argmax() == 1
    assert together[3].argmax() == 0


def test_a_batch_of_one_is_answered_as_the_head_does() -> None:
    bundle = make_bundle()
    client, stream = DeployedClient(bundle), make_stream(bundle)
    alone = np.concatenate([Lame(client).predict(row[None]) for row in stream])
    np.testing.assert_allclose(alone, GlobalHead(client).predict(stream), atol=1e-9)


def test_batches_know_nothing_of_each_other_and_two_runs_are_equal() -> None:
    bundle = make_bundle()
    method, stream = Lame(DeployedClient(bundle)), make_stream(bundle)
    first = method.predict(stream[:32])
    method.predict(stream[32:])
    assert np.array_equal(method.predict(stream[:32]), first)
    assert not np.allclose(method.predict(stream[:16]), first[:16])
    np.testing.assert_allclose(first.sum(1), 1.0)


def test_twins_and_features_of_zeros_do_no_harm() -> None:
    head = LinearHead(np.array([[100.0, 0.0], [0.0, 100.0]]))
    client = DeployedClient(dataclasses.replace(make_bundle(2, 2), global_head=head))
    answers = Lame(client).predict(np.array([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 0.0], [0.0, 0.0]]))
    assert np.isfinite(answers).all()
    assert answers[0].argmax() == 0
    assert answers[2].argmax() == 1


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(InputError, match="neighbours must be a whole number of at least 1"):
        find_method("lame[neighbours=0]").build(DeployedClient(make_bundle()))
