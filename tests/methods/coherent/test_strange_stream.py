"""Strangeness of a stream: what labels cannot explain adds up, and what they can does not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import ClientBundle, Monitor, Summary
from btfl.errors import InputError
from btfl.methods.coherent import Strangeness, WatchfulCoherent
from btfl.methods.coherent.strange_stream import REMEMBERED
from btfl.monitor import levels_for

CLASSES, DIMENSIONS = 4, 40
MEANS = np.random.default_rng(7).normal(0, 2.0, (CLASSES, DIMENSIONS))


def draw(
    samples: int, seed: int | list[int], shares: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, samples, p=shares)
    return MEANS[labels] + rng.normal(size=(samples, DIMENSIONS)), labels


def make_bundle(
    own: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25), validation: int = 600, seed: int = 0
) -> ClientBundle:
    mine, others = Summary.of(*draw(300, [1, seed], own), CLASSES), Summary.of(*draw(4000, [2, seed]), CLASSES)
    head = MEANS, -0.5 * (MEANS**2).sum(axis=1)
    return ClientBundle.of(head, head, mine, mine + others, validation=draw(validation, [3, seed], own))


def stream(bundle: ClientBundle, features: np.ndarray) -> np.ndarray:
    method = WatchfulCoherent(bundle)
    method.predict(features)
    return np.asarray(method.trace["strange_stream"])


def direction_without_labels() -> np.ndarray:
    """Return a unit vector in which no two class means differ."""
    spread = np.linalg.svd(MEANS - MEANS.mean(axis=0))[2]
    return np.asarray(spread[-1])


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_it_is_about_one_on_a_stream_of_the_clients_own(seed: int) -> None:
    found = stream(make_bundle(), draw(2000, seed)[0])[3 * REMEMBERED :]
    assert 0.8 < np.sqrt((found**2).mean()) < 1.2


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_other_labels_do_not_move_it(seed: int) -> None:
    bundle = make_bundle((0.5, 0.5, 0.0, 0.0))
    found = stream(bundle, draw(2000, seed, (0.0, 0.0, 0.5, 0.5))[0])[3 * REMEMBERED :]
    assert 0.8 < np.sqrt((found**2).mean()) < 1.25


@pytest.mark.parametrize("samples", [60, 150, 600])
def test_few_own_samples_are_no_reason_for_alarms(samples: int) -> None:
    """Their mean is uncertain, which streams drawn from them do not show."""
    alarms = 0
    for seed in range(4):
        bundle = make_bundle(validation=samples, seed=seed)
        method = WatchfulCoherent(bundle)
        monitor = Monitor(levels_for(method, bundle, drawn=10_000), rate=1.0)
        method.predict(draw(1000, [99, seed])[0])
        alarms += sum(each.begins and each.signal == "strange_stream" for each in monitor.watch(method.trace))
    assert alarms <= 6  # 4,000 samples at a third of one in 1,000: 1.3 on average


def test_where_only_training_features_are_known_everyones_mean_takes_the_place_of_the_own() -> None:
    bundle = make_bundle(validation=40)
    known = {**bundle.statistics, "train_features": draw(300, 5)[0], "train_labels": draw(300, 5)[1]}
    strangeness = Strangeness(replace(bundle, statistics=known))
    assert strangeness.averaged == 0
    assert not strangeness.unlabelled.any()


def test_what_no_single_sample_shows_adds_up() -> None:
    bundle, shifted = make_bundle(), draw(200, 9)[0] + 2.0 * direction_without_labels()
    strangeness = Strangeness(bundle)
    alone = (strangeness.of(shifted) > strangeness.level(0.01)).mean()
    own = stream(bundle, draw(4000, 11)[0])
    assert alone < 0.2
    assert (stream(bundle, shifted)[2 * REMEMBERED :] > np.quantile(own, 0.999)).all()


def test_one_sample_far_away_is_no_alarm() -> None:
    bundle, features = make_bundle(), draw(200, 4)[0]
    features[100] += 1e6 * direction_without_labels()
    own = stream(bundle, draw(4000, 11)[0])
    assert stream(bundle, features).max() < 1.1 * own.max()


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 59]))
def test_it_goes_on_from_its_state_however_the_stream_is_cut(seed: int, batch: int) -> None:
    bundle, features = make_bundle(), draw(60, seed)[0]
    whole, state, parts = stream(bundle, features), None, []
    for start in range(0, 60, batch):
        method = WatchfulCoherent(bundle)
        if state is not None:
            method.restore(json.loads(state))
        method.predict(features[start : start + batch])
        parts.append(method.trace["strange_stream"])
        state = json.dumps(method.state)
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-12)


def test_a_bundle_without_features_carries_the_clients_own() -> None:
    bundle, features = make_bundle(), draw(50, 1)[0]
    rest = {name: array for name, array in bundle.statistics.items() if not name.startswith("validation_")}
    carried = Strangeness(bundle).carried_by(replace(bundle, statistics=rest))
    carried = replace(carried, metadata=json.loads(json.dumps(dict(carried.metadata))))
    assert (stream(carried, features) == stream(bundle, features)).all()


@pytest.mark.parametrize("validation", [600, 20])
def test_the_memory_of_another_model_is_a_new_beginning_and_coherents_own_goes_on(validation: int) -> None:
    """Also where there are too few validation samples for a mean of the client's own, so that both have 0 for it."""
    first, second = (WatchfulCoherent(make_bundle(validation=validation, seed=seed)) for seed in (0, 1))
    first.predict(draw(100, 5)[0])
    second.restore(first.state)
    assert second.state["strange_stream"]["average"] == [0.0] * DIMENSIONS
    assert second.state["seen"] == 100


@pytest.mark.parametrize(
    "damage", [3, {}, {"of": 1, "average": []}, {"average": [0.0]}, {"average": [float("nan")] * DIMENSIONS}]
)
def test_a_damaged_state_is_refused_and_nothing_is_lost(damage: object) -> None:
    method = WatchfulCoherent(make_bundle())
    method.predict(draw(100, 5)[0])
    before = method.state
    broken = {**before["strange_stream"], **damage} if isinstance(damage, dict) and damage else damage
    with pytest.raises(InputError):
        method.restore({**before, "strange_stream": broken})
    assert method.state == before
