"""Clients that flip labels alike are a camp of their own; clients with other classes or in another style are not."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.core.summary import Summary
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.sources.digits import load
from btfl.engines import Event, train_federation
from btfl.engines.averaging import HEAD, Averaging
from btfl.engines.camps import moves_of, other_camp
from btfl.recipes.base import Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.standing import MOST_MET, Standing
from btfl.studies.lies import LIES, LyingEngine

CLIENTS, CLASSES, SIZE, OWN = 10, 8, 40, 4


def steps_of(seed: int, liars: int, rounds: int = 3, style: float = 0.0) -> list[np.ndarray]:
    """What clients with four of eight classes do to a head; the first few reverse labels, or have another style."""
    rng = np.random.default_rng(seed)
    means = 1.0 + 0.5 * np.abs(rng.normal(size=(CLASSES, SIZE)))
    styles = style * rng.normal(size=(CLASSES, SIZE))
    shares = np.zeros((CLIENTS, CLASSES))
    for row in shares:
        row[rng.choice(CLASSES, OWN, replace=False)] = 1 / OWN
    found = []
    for _ in range(rounds):
        steps = np.empty((CLIENTS, CLASSES, SIZE))
        for client, share in enumerate(shares):
            seen = means + (styles if client < liars else 0.0) + 0.05 * rng.normal(size=means.shape)
            steps[client] = share[:, None] * seen - share @ seen / CLASSES  # y - p of a model that knows nothing
            if client < liars and not style:
                steps[client] = steps[client, ::-1]
        found.append(steps)
    return found


def named(rounds: list[np.ndarray]) -> list[int]:
    standing, found = Standing(), list[int]()
    for steps in rounds:
        moves = moves_of(steps)
        assert moves is not None
        standing = standing.meeting(range(CLIENTS), moves.products, moves.sizes)
        found = other_camp(*standing.agreement(range(CLIENTS)), moves.rows)
    assert Standing.from_json(standing.as_json()) == standing
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), liars=st.integers(2, 4))
def test_those_who_flip_labels_alike_are_named_and_nobody_else(seed: int, liars: int) -> None:
    assert set(named(steps_of(seed, liars))) <= set(range(liars))
    assert named(steps_of(seed, 0)) == []


def test_four_of_ten_are_named_though_clients_have_half_of_the_classes() -> None:
    found = [named(steps_of(seed, 4)) for seed in range(20)]
    assert sum(one == [0, 1, 2, 3] for one in found) >= 18


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), style=st.floats(0.1, 2.0))
def test_another_style_of_the_same_classes_is_no_other_name(seed: int, style: float) -> None:
    assert named(steps_of(seed, 4, style=style)) == []


def test_clients_without_a_class_in_common_are_no_camps() -> None:
    rng = np.random.default_rng(0)
    steps = -np.abs(rng.normal(size=(8, 8, 20)))
    steps[np.arange(8), np.arange(8)] *= -1
    moves = moves_of(steps)
    assert moves is not None
    agreement, met = Standing().meeting(range(8), moves.products, moves.sizes).agreement(range(8))
    assert not met.any()
    assert other_camp(agreement, met, moves.rows) == []


def test_where_features_have_either_sign_nothing_is_said() -> None:
    assert moves_of(np.random.default_rng(0).normal(size=(10, 5, 64))) is None
    assert moves_of(np.abs(np.random.default_rng(0).normal(size=(3, 5, 64)))) is None  # too few clients


def test_pairs_are_kept_of_so_many_clients_only() -> None:
    ones = np.ones((4, 4))
    standing = Standing().meeting([0, 1, 2, 3], ones, ones)
    assert len(standing.pairs) == 6
    assert standing.meeting([5, 6, 7, 2], ones, ones).pairs.keys() > standing.pairs.keys()
    many = np.ones((MOST_MET, MOST_MET))
    assert standing.meeting(range(2, MOST_MET + 2), many, many) == standing


def test_training_begins_again_without_them() -> None:
    rng = np.random.default_rng(3)
    shared = {HEAD: rng.normal(size=(CLASSES, SIZE)).astype(np.float32)}
    standing, restarts = Standing(), []
    for round_, steps in enumerate(steps_of(3, 4, rounds=4), start=1):
        made = Averaging(shared, TrainingSettings(defence="screen"), round_, standing)
        for client, step in enumerate(steps):
            made.add(client, Update({HEAD: (shared[HEAD] * np.float32(1.01) + step).astype(np.float32)}, samples=3))
        found = made.result()
        standing = found.standing
        restarts.append(found.restart)
    assert standing.misnamed == {0, 1, 2, 3}
    assert set(found.left_out) == {0, 1, 2, 3}
    assert sum(restarts) == 1


def test_without_them_the_head_knows_their_sums_and_neither_those_nor_their_calibrations_count() -> None:
    source, liars, events = load(shift="none"), [1, 3, 5, 9], list[Event]()
    data = FederatedData(source, make_partition(source, PartitionSettings(clients=10, alpha=0.3), seed=0))
    about = TrainingSettings.for_model("mlp", rounds=6, local_epochs=5, finetune_epochs=0, personal_epochs=1)
    engine = LyingEngine(LIES["label shift"], liars)
    found = train_federation(FedAvg(about, (8, 8, 1), 10), data, engine, report=events.append)
    named = {event.client for event in events if event.stage == "train" and "other names" in event.warning}
    assert named == set(liars)
    assert {event.client for event in events if event.stage == "describe" and event.warning} == set(liars)
    honest = [data.of(client, about.rounds) for client in range(10) if client not in liars]
    assert isinstance(found.total, Summary)
    sums = found.total.to_arrays()
    assert sums["samples"] == sum(len(one.train.labels) for one in honest)
    assert sums["calibration_samples"] == sum(len(one.validation.labels) for one in honest)


def blocks(larger: float, smaller: float) -> list[int]:
    """Six clients and four that raise other rows; how much each camp agrees with itself."""
    camp = np.arange(CLIENTS) >= 6
    agreement = np.where(camp & camp[:, None], smaller, np.where(~camp & ~camp[:, None], larger, 0.0))
    met = ~np.eye(CLIENTS, dtype=bool)
    rows = np.zeros((CLIENTS, CLASSES, SIZE))
    rows[:, np.arange(CLASSES), np.arange(CLASSES)] = 1.0
    rows[camp] = rows[camp, ::-1]
    return other_camp(np.where(met, agreement, 0.0), met, rows)


def test_a_larger_camp_that_agrees_far_less_than_the_smaller_one_is_a_mixture() -> None:
    assert blocks(0.5, 0.5) == [6, 7, 8, 9]
    assert blocks(0.25, 0.55) == []


def test_who_agrees_with_nobody_is_no_camp() -> None:
    assert blocks(0.5, 0.15) == []


def test_honest_clients_that_chance_has_parted_are_no_camps() -> None:
    assert blocks(0.22, 0.22) == []  # nine of twenty of a resnet20, and none between them
