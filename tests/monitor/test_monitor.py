"""The monitor: levels at the promised rate, alarms that begin and end once, a memory that can be saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from btfl import Btfl, ClientBundle, Coherent
from btfl.errors import InputError
from btfl.methods.base import Trace
from btfl.monitor import (
    CARRIED,
    RATES,
    Alarm,
    AlarmLevels,
    Levels,
    Monitor,
    Own,
    calibrate,
    carried_levels,
    carrying,
    level_alone,
    level_at,
    levels_for,
    own_features,
    watched,
)
from fleet import foreign, make_bundles, own

BUNDLE = make_bundles()[0]


def flat(on: float, warm_up: int = 0) -> AlarmLevels:
    return AlarmLevels({"all_external": (on,) * len(RATES)}, {"all_external": 0.0}, warm_up, "validation", 100, "x")


def trace(values: list[float]) -> Trace:
    return Trace({"all_external": np.array(values)})


@given(st.integers(0, 1000), st.floats(0.5, 20))
@settings(max_examples=30)
def test_a_level_is_the_lowest_that_keeps_its_rate(seed: int, rate: float) -> None:
    quiet = np.random.default_rng(seed).normal(size=(40, 50))

    def crossed_at(level: float) -> float:
        first = [int(np.argmax(row > level)) if (row > level).any() else None for row in quiet]
        return 1000 * sum(one is not None for one in first) / sum(50 if one is None else one + 1 for one in first)

    level = level_at(quiet, rate)
    assert crossed_at(level) <= rate
    below = quiet[quiet < level].max()
    assert crossed_at(below) >= crossed_at(level)
    highest = np.sort(np.maximum.accumulate(quiet, axis=1).ravel())
    lower = highest[highest < level]
    assert len(lower) == 0 or crossed_at(lower[-1]) > rate


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([10.0, 1.0, 0.1]))
def test_the_level_of_single_samples_keeps_its_rate_beyond_all_that_were_seen(seed: int, rate: float) -> None:
    """400 samples say nothing of one in 10,000 by themselves; where tails are exponential, or lighter, it is kept."""
    level = level_alone(np.random.default_rng(seed).exponential(size=400), rate)
    truly = 1000.0 * np.exp(-level)
    # the mean of 40 exceedances is off by 1/sqrt(40), times how many of them the level is away
    spread = (np.log(100.0 / rate) + 1.0) / np.sqrt(40)
    assert abs(np.log(truly / rate)) < 5 * spread
    normal = level_alone(np.abs(np.random.default_rng(seed).normal(size=400)), rate)
    assert np.log(2000.0 * ndtr(-normal) / rate) < 4 * spread


def test_own_streams_alarm_at_the_promised_rate() -> None:
    """Levels from one draw of own samples; false alarms on another: 300,000 samples at 2 in 1,000."""
    method = Coherent(BUNDLE)
    levels = calibrate(method, Own(own(0, 3000, 5), "validation", 3000), warm_up=20, drawn=60_000).at(2.0)[
        "all_external"
    ]
    rng, fresh, alarms, watched_samples = np.random.default_rng(1), own(0, 3000, 6), 0, 0
    for _ in range(120):
        method.reset()
        method.predict(fresh[rng.integers(len(fresh), size=520)])
        above = np.flatnonzero(method.trace["all_external"][20:] > levels.on)
        alarms += len(above) > 0
        watched_samples += above[0] + 1 if len(above) else 500
    rate = 1000 * alarms / watched_samples
    assert abs(rate - 2.0) < 3 * 1000 * np.sqrt(alarms) / watched_samples + 0.3


def test_a_stream_that_turns_is_noticed_soon() -> None:
    method = Coherent(BUNDLE)
    heard: list[Alarm] = []
    monitor = Monitor(calibrate(method, own_features(BUNDLE), drawn=10_000), on_alarm=heard.append, rate=1.0)
    method.predict(np.concatenate([own(0, 100), foreign(0, 50), own(0, 100, 1)]))
    found = monitor.watch(method.trace)
    assert found == heard
    assert [alarm.begins for alarm in found] == [True, False]
    assert 100 <= found[0].sample < 115
    assert found[0].kind == "external"
    assert 150 <= found[1].sample < 220
    assert monitor.alarmed == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.data())
def test_however_a_stream_is_cut_and_saved_the_alarms_are_the_same(values: list[float], data: st.DataObject) -> None:
    whole = Monitor(flat(0.7), warm_up=3, calm=2)
    expected = whole.watch(trace(values))
    cut, found = Monitor(flat(0.7), warm_up=3, calm=2), []
    place = 0
    while place < len(values):
        step = data.draw(st.integers(1, 10))
        found += cut.watch(trace(values[place : place + step]))
        saved, cut = json.loads(json.dumps(cut.state)), Monitor(flat(0.7), warm_up=3, calm=2)
        cut.restore(saved)
        place += step
    assert found == expected
    assert cut.alarmed == whole.alarmed
    begins = [alarm.begins for alarm in expected]
    assert begins == [True, False] * (len(begins) // 2) + [True] * (len(begins) % 2)
    assert all(alarm.sample >= 3 for alarm in expected)


def test_an_alarm_ends_after_calm_samples_in_a_row() -> None:
    monitor = Monitor(flat(0.8), warm_up=0, calm=3)
    assert monitor.levels["all_external"] == Levels(0.8, 0.4)
    found = monitor.watch(trace([0.9, 0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.9]))
    assert [(alarm.begins, alarm.sample) for alarm in found] == [(True, 0), (False, 6), (True, 7)]


def test_a_lower_rate_has_a_higher_level_and_signals_share_it() -> None:
    calibration = calibrate(Coherent(BUNDLE), own_features(BUNDLE), drawn=20_000)
    levels = [calibration.at(rate)["all_external"].on for rate in (10, 3, 1, 0.3, 0.1)]
    assert levels == sorted(levels)
    both = ("all_external", "strangeness")
    levels_of_both = dict.fromkeys(both, calibration.levels["all_external"])
    two = replace(calibration, levels=levels_of_both, middle=dict.fromkeys(both, 0.0))
    assert two.at(2.0)["all_external"].on == calibration.at(1.0)["all_external"].on


def test_where_no_features_are_kept_own_streams_come_from_the_sums() -> None:
    kept = {name: value for name, value in BUNDLE.statistics.items() if not name.startswith(("train", "validation"))}
    bundle = replace(BUNDLE, statistics=kept)
    found = own_features(bundle, Coherent(bundle).settings)
    assert (found.source, found.samples) == ("sums", 0)
    assert found.features.shape == (1000, BUNDLE.dimensions)
    assert (found.features >= 0).all()
    calibrate(Coherent(bundle), found, drawn=2000)
    with pytest.raises(InputError, match="local_class_counts"):
        own_features(replace(BUNDLE, statistics={}))


def without_features(bundle: ClientBundle) -> ClientBundle:
    kept = {name: value for name, value in bundle.statistics.items() if not name.startswith(("train", "validation"))}
    return replace(bundle, statistics=kept)


def test_levels_that_go_along_with_a_bundle_are_those_of_its_features(tmp_path: Path) -> None:
    found = calibrate(Coherent(BUNDLE), own_features(BUNDLE), drawn=5000)
    carrying(without_features(BUNDLE), found).save(tmp_path)
    arrived = ClientBundle.load(tmp_path)
    levels = levels_for(Coherent(arrived), arrived)
    assert levels == found
    assert (levels.source, levels.approximate) == ("validation", False)
    assert carried_levels(BUNDLE) == ()


def test_a_bundle_without_features_or_levels_says_that_its_alarms_are_approximate() -> None:
    bundle = without_features(BUNDLE)
    assert levels_for(Coherent(bundle), bundle, drawn=2000).approximate
    assert not levels_for(Coherent(bundle), BUNDLE, drawn=2000).approximate


def test_levels_of_other_settings_or_of_another_warm_up_are_not_used() -> None:
    bundle = carrying(BUNDLE, calibrate(Coherent(BUNDLE), own_features(BUNDLE), drawn=2000))
    (sent,) = carried_levels(bundle)
    assert levels_for(Coherent(bundle), bundle, drawn=2000) == sent
    for method, warm_up in ((Coherent(bundle, change=0.01), 20), (Btfl(bundle), 20), (Coherent(bundle), 5)):
        found = levels_for(method, bundle, warm_up, drawn=2000)
        assert found != sent
        assert found.fits(method, warm_up)


@pytest.mark.parametrize("wrong", [{}, 3, [3], [{"levels": {}}]])
def test_damaged_levels_of_a_bundle_are_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        carried_levels(replace(BUNDLE, metadata={CARRIED: wrong}))


def test_a_method_without_all_external_is_watched_by_e() -> None:
    assert watched(Coherent.columns) == ("all_external",)
    assert watched(Btfl.columns) == ("e",)
    assert watched({"all_external": 1, "strangeness": 1, "e": 1}) == ("all_external", "strangeness")
    assert watched({}) == ()


def test_a_calibration_comes_back_from_json() -> None:
    one = calibrate(Coherent(BUNDLE), own_features(BUNDLE), drawn=2000)
    assert AlarmLevels.from_json(json.loads(json.dumps(one.to_json()))) == one
    wrong: object
    for wrong in ({}, [], {**one.to_json(), "levels": {}}, {**one.to_json(), "levels": {"all_external": [1]}}):
        with pytest.raises(InputError):
            AlarmLevels.from_json(wrong)


@pytest.mark.parametrize(
    "state", [{}, {"seen": 1}, {"seen": -1, "calm": {}}, {"seen": 1, "calm": {"all_external": ""}}]
)
def test_a_state_that_is_none_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Monitor(flat(0.5)).restore(state)


def test_a_trace_of_another_method_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"no 'all_external', which this monitor has levels for, only e, .*: levels are"
    ):
        Monitor(flat(0.5)).watch(Trace({"e": np.zeros(3), "log_tau": np.zeros(3)}))
