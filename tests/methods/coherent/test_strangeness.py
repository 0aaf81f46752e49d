"""Neither internal nor external: how strange a sample is, the promised false alarms, and the alarm of a monitor."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import ClientBundle, Coherent, Monitor, Summary
from btfl.errors import InputError
from btfl.methods.coherent import Strangeness, WatchfulCoherent
from btfl.monitor import Alarm, levels_for

CLASSES, DIMENSIONS = 4, 40


def draw(samples: int, seed: int, client: int = 0) -> tuple[np.ndarray, np.ndarray]:
    means = np.random.default_rng(7).normal(0, 2.0, (CLASSES, DIMENSIONS))
    rng = np.random.default_rng([seed, client])
    labels = rng.integers(CLASSES, size=samples)
    return means[labels] + rng.normal(size=(samples, DIMENSIONS)), labels


def make_bundle(seed: int = 0, validation: int = 400) -> ClientBundle:
    own, others = Summary.of(*draw(200, seed), CLASSES), Summary.of(*draw(600, seed, 1), CLASSES)
    means = own.class_sums().sums / own.class_sums().counts[:, None]
    head = means, -0.5 * (means**2).sum(axis=1)
    return ClientBundle.of(head, head, own, own + others, validation=draw(validation, seed, 2))


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.05, 0.2]))
def test_own_samples_are_strange_as_often_as_promised(seed: int, rate: float) -> None:
    strangeness = Strangeness(make_bundle(seed, validation=1000))
    found = float((strangeness.of(draw(4000, seed, 3)[0]) > strangeness.level(rate)).mean())
    spread = np.sqrt(rate * (1 - rate) * (1 / 1000 + 1 / 4000))
    assert abs(found - rate) < 5 * spread


@pytest.mark.parametrize("frame", [np.full(DIMENSIONS, 9.0), 30 * np.eye(DIMENSIONS)[0]])
def test_what_is_far_from_every_class_is_strange(frame: np.ndarray) -> None:
    strangeness = Strangeness(make_bundle())
    assert strangeness.of(frame[None])[0] > strangeness.level(0.01)


def test_what_is_nearer_to_a_class_than_any_sample_is_strange_too() -> None:
    bundle = make_bundle()
    sums = bundle.statistics["global_class_feature_sums"]
    centre = sums[1] / bundle.statistics["global_class_counts"][1]
    strangeness = Strangeness(bundle)
    assert strangeness.of(centre[None])[0] > strangeness.level(0.01)


def test_a_bundle_without_features_carries_what_is_typical() -> None:
    bundle = make_bundle()
    strangeness, features = Strangeness(bundle), draw(20, 1)[0]
    rest = {name: array for name, array in bundle.statistics.items() if not name.startswith("validation_")}
    alone = replace(bundle, statistics=rest)
    with pytest.raises(InputError, match="features"):
        Strangeness(alone)
    carried = strangeness.carried_by(alone)
    carried = replace(carried, metadata=json.loads(json.dumps(dict(carried.metadata))))
    assert (Strangeness(carried).of(features) == strangeness.of(features)).all()
    assert Strangeness(carried).level(0.01) == pytest.approx(strangeness.level(0.01), abs=1e-4)


@pytest.mark.parametrize(
    "damaged",
    [
        3,
        {},
        {"typical": [[0, 0], [1, 1]], "own": [1.0], "unlabelled": [0.0]},
        {"typical": [[0, 0], [1, 0]], "own": [1.0]},
        {"typical": "x", "own": []},
    ],
)
def test_damaged_metadata_are_refused(damaged: object) -> None:
    bundle = make_bundle()
    with pytest.raises(InputError, match="strangeness"):
        Strangeness(replace(bundle, metadata={"strangeness": damaged}))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_of_false_alarms_is_between_none_and_all(share: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        Strangeness(make_bundle()).level(share)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 60]))
def test_the_answer_and_the_rest_of_the_trace_are_coherents_to_the_bit(seed: int, batch: int) -> None:
    bundle, features = make_bundle(), draw(60, seed)[0]
    plain, watchful = Coherent(bundle), WatchfulCoherent(bundle)
    for start in range(0, 60, batch):
        rows = features[start : start + batch]
        assert (plain.predict(rows) == watchful.predict(rows)).all()
        assert all((plain.trace[name] == watchful.trace[name]).all() for name in plain.trace)
        assert (watchful.trace["strangeness"] == Strangeness(bundle).of(rows)).all()


def test_a_dead_camera_is_an_alarm_at_once_and_the_alarm_ends_with_it() -> None:
    bundle, quiet = make_bundle(), draw(300, 5)[0]
    method = WatchfulCoherent(bundle)
    monitor = Monitor(levels_for(method, bundle, drawn=4000))
    method.reset()
    dead = np.repeat(np.full((1, DIMENSIONS), 9.0), 30, axis=0)
    alarms: dict[str, list[Alarm]] = {"strangeness": [], "strange_stream": []}
    for part in (quiet[:100], dead, quiet[100:]):
        method.predict(part)
        for alarm in monitor.watch(method.trace):
            if alarm.kind == "strange":
                alarms[alarm.signal].append(alarm)
    for found in alarms.values():
        assert [(alarm.begins, alarm.sample >= 130) for alarm in found] == [(True, False), (False, True)]
    assert alarms["strangeness"][0].sample == 100
    assert alarms["strange_stream"][0].sample <= 104
    assert monitor.alarmed == ()


def test_one_feature_that_never_varies_is_no_error() -> None:
    features, labels = draw(200, 0)
    features[:, 3] = 1.0
    own = Summary.of(features, labels, CLASSES)
    head = np.eye(CLASSES, DIMENSIONS)
    bundle = ClientBundle.of(head, head, own, own, features=features, labels=labels)
    assert np.isfinite(Strangeness(bundle).of(features)).all()
