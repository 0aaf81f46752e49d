"""Detectors are judged rightly, see no label and nothing of the future, and the window tests are what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from typer.testing import CliRunner

import btfl.studies.drift.detectors as detectors_module
from btfl import ClientBundle, DiscretisedLikelihood
from btfl.benchmark.run import run_bench
from btfl.cli.drift import drift
from btfl.core.generative import class_scores
from btfl.core.heads import LinearHead
from btfl.core.summary import ClassSums
from btfl.errors import InputError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import read_preset
from btfl.runs.client import DeployedClient
from btfl.studies.drift.detectors import (
    DETECTORS,
    WINDOW,
    Detector,
    choose,
    cusum,
    evidence,
    ks_window,
    mmd_window,
    regime,
)
from btfl.studies.drift.protocol import Protocol, crossings, detect, first_alarm, judge
from btfl.studies.drift.scenarios import BASE, Base
from btfl.studies.drift.tables import at_rate, drift_table

Floats = NDArray[np.float64]
CLASSES, DIMENSIONS = 4, 6
OWN, EVERYONE = np.array([0.7, 0.3, 0.0, 0.0]), np.full(4, 0.25)
SHORT = Protocol(before=80, after=60, draws=3, warm_up=60)
NO_RIVER = tuple(name for name, one in DETECTORS.items() if not one.needs_river)


def sample(count: int, shares: Floats, seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Features of a world where populations differ in how often each class occurs, and in nothing else."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, size=count, p=shares)
    means = 2.5 * np.eye(CLASSES, DIMENSIONS)
    return np.maximum(means[labels] + rng.normal(0.5, 0.7, (count, DIMENSIONS)), 0.0), labels


def make_world(number: int = 0) -> Base:
    train, labels = sample(300, OWN, 10 + number)
    all_features, all_labels = sample(1000, EVERYONE, 20)
    counts = np.bincount(all_labels, minlength=CLASSES).astype(float)
    sums = np.stack([all_features[all_labels == k].sum(axis=0) for k in range(CLASSES)])
    scatter = all_features.T @ all_features
    head = class_scores(ClassSums(counts, sums, scatter), 0.1)
    assert head.bias is not None
    bundle = ClientBundle(
        global_head=head,
        personal_head=LinearHead(head.weight, head.bias + np.log(OWN + 0.01)),
        local_likelihood=DiscretisedLikelihood.fit(train),
        global_likelihood=DiscretisedLikelihood.fit(all_features),
        local_entropy=0.3,
        global_entropy=0.4,
        statistics={
            "global_class_counts": counts,
            "global_class_feature_sums": sums,
            "global_feature_scatter": scatter,
            "local_class_counts": np.bincount(labels, minlength=CLASSES),
            "train_features": train,
        },
    )
    drawn = {name: sample(90, OWN if name.endswith("ind") else EVERYONE, 30 + i) for i, name in enumerate(BASE)}
    return Base(
        number,
        {name: part[1] for name, part in drawn.items()},
        {"fedavg": DeployedClient(bundle)},
        {"fedavg": {name: part[0] for name, part in drawn.items()}},
    )


@pytest.fixture(scope="module")
def world() -> Base:
    return make_world()


def told(base: Base) -> Callable[[ClientBundle, Floats], Floats]:
    """A score that cheats: 1 for the rows of the external pool."""
    external = {row.tobytes() for row in base.features["fedavg"]["original_exd"]}
    return lambda _, features: np.array([float(row.tobytes() in external) for row in features])


def test_a_perfect_score_has_no_delay_and_no_false_alarm(world: Base) -> None:
    found = detect([world], [Detector("perfect", "perfect", "test", told(world))], SHORT)
    best = at_rate(found, 0.0).loc["perfect"]
    assert (best["delay"], best["delay_low"], best["delay_high"]) == (0, 0, 0)
    assert (best["detected"], best["false_alarms"], best["drifts"]) == (1, 0, SHORT.draws)


def test_a_constant_score_never_alarms(world: Base) -> None:
    constant = Detector("constant", "constant", "test", lambda _, features: np.full(len(features), 0.7))
    found = detect([world], [constant], SHORT)
    assert (found["false_alarms"] == 0).all()
    assert (found["detected"] == 0).all()
    assert (found["delay"] == SHORT.after).all()
    assert drift_table(found, 1.0, SHORT.after).rows[0].cells[4].text == "> 59"


def test_what_an_alarm_counts_for() -> None:
    protocol = Protocol(before=50, after=50, draws=2, warm_up=10)
    none = protocol.length
    quiet = np.array([[19, none], [none, none]])  # after ten samples; and 90 in each of the others
    drifting = np.array([[50, 57], [30, none]])  # at once, after 7, too early, missed
    found = judge(quiet, drifting, protocol)
    assert (found["quiet_alarms"], found["quiet_samples"]) == (1, 10 + 3 * 90)
    assert found["false_alarms"] == pytest.approx(1000 / 280)
    assert found["drifts"] == 3  # an alarm before the drift is no detection of it, and no delay
    assert found["detected"] == pytest.approx(2 / 3)
    assert found["delay"] == 7
    assert found["delay_low"] <= 7 <= found["delay_high"] <= 50


def test_the_first_crossing_is_the_first() -> None:
    rng = np.random.default_rng(0)
    scores, thresholds = rng.normal(size=80).round(1), np.linspace(-3, 3, 25).round(1)
    expected = [next((i for i in range(20, 80) if scores[i] > threshold), 80) for threshold in thresholds]
    assert crossings(scores, thresholds, 20).tolist() == expected


def test_a_lower_threshold_alarms_no_later_and_more_often(world: Base) -> None:
    found = detect([world, make_world(1)], choose(NO_RIVER), SHORT)
    for name, part in found.groupby("detector"):
        assert (np.diff(part["setting"]) < 0).all(), name
        assert (np.diff(part["false_alarms"]) >= 0).all(), name
        assert part["false_alarms"].iloc[0] == 0, name


def test_a_detector_is_given_features_and_bundle_and_never_an_answer(world: Base) -> None:
    seen: list[tuple[object, Floats]] = []

    def spy(bundle: ClientBundle, features: Floats) -> Floats:
        seen.append((bundle, features))
        return np.zeros(len(features))

    detect([world], [Detector("spy", "spy", "test", spy)], SHORT)
    bundle = world.clients["fedavg"].bundle
    assert len(seen) == 2 * SHORT.draws
    assert all(given is bundle and features.shape == (SHORT.length, DIMENSIONS) for given, features in seen)
    wrong = replace(world, labels={name: (labels + 1) % CLASSES for name, labels in world.labels.items()})
    honest, poisoned = (detect([base], choose(NO_RIVER), SHORT) for base in (world, wrong))
    pd.testing.assert_frame_equal(honest, poisoned)


@pytest.mark.parametrize("name", DETECTORS)
def test_a_score_knows_nothing_of_later_samples(world: Base, name: str) -> None:
    if DETECTORS[name].needs_river:
        pytest.importorskip("river")
    bundle, score = world.clients["fedavg"].bundle, DETECTORS[name].signal
    features = np.concatenate([world.features["fedavg"][part] for part in ("original_ind", "original_exd")])
    np.testing.assert_allclose(score(bundle, features)[:130], score(bundle, features[:130]), rtol=1e-9, atol=1e-12)


def test_where_only_label_shares_change_the_memory_notices(world: Base) -> None:
    protocol = replace(SHORT, draws=10)
    found = detect([make_world(i) for i in range(3)], choose(["regime", "coherent-e", "cusum"]), protocol)
    best = at_rate(found, 2.0)
    assert (best["detected"] > 0.9).all()
    assert (best["delay"] < 30).all()


def test_the_cumulative_sum_starts_anew_below_zero(world: Base) -> None:
    bundle, features = world.clients["fedavg"].bundle, world.features["fedavg"]["original_exd"]
    steps, sums = evidence(bundle, features), cusum(bundle, features)
    np.testing.assert_allclose(sums, np.maximum(0, np.append(0, sums[:-1]) + steps))
    assert (sums >= 0).all()
    assert sums[-1] > cusum(bundle, world.features["fedavg"]["original_ind"])[-1]
    assert regime(bundle, features)[-1] > 0.5


def test_the_ks_window_is_the_largest_two_sample_statistic(world: Base) -> None:
    statistics = {**world.clients["fedavg"].bundle.statistics}
    statistics["train_features"] = statistics["train_features"].round(0)  # few values: quantiles hit them all
    bundle = _with(world.clients["fedavg"].bundle, statistics)
    features = world.features["fedavg"]["shifted_exd"].round(0)
    scores = ks_window(bundle, features)
    assert np.isneginf(scores[: WINDOW - 1]).all()
    for end in (WINDOW, 77, 90):
        window, train = features[end - WINDOW : end], statistics["train_features"]
        expected = max(ks_2samp(window[:, i], train[:, i]).statistic for i in range(DIMENSIONS))
        assert scores[end - 1] == pytest.approx(expected, abs=0.02)  # values that training never saw lie between


def test_the_mmd_window_is_the_discrepancy_but_for_a_constant(world: Base) -> None:
    bundle, features = world.clients["fedavg"].bundle, world.features["fedavg"]["original_exd"]
    train, scores = bundle.statistics["train_features"], mmd_window(bundle, features)
    width = np.median(((train[:200, None] - train[-200:]) ** 2).sum(axis=2))

    def kernel(one: Floats, other: Floats) -> float:
        return float(np.exp(-((one[:, None] - other) ** 2).sum(axis=2) / width).mean())

    windows = [features[end - WINDOW : end] for end in (WINDOW, 63, 90)]
    constants = [
        kernel(window, window) - 2 * kernel(window, train) - scores[end - 1]
        for window, end in zip(windows, (WINDOW, 63, 90), strict=True)
    ]
    np.testing.assert_allclose(constants, 0, atol=1e-9)


def test_kswin_alarms_where_its_p_value_says(world: Base) -> None:
    river = pytest.importorskip("river.drift")
    bundle = world.clients["fedavg"].bundle
    features = np.concatenate([world.features["fedavg"][part] for part in ("original_ind", "original_exd")])
    real = river.KSWIN(alpha=0.01, seed=0)
    values = detectors_module.scaled(evidence, bundle, features).tolist()
    alarm = first_alarm(real, values, 0)
    assert alarm < len(values)
    assert crossings(DETECTORS["kswin-evidence"].signal(bundle, features), np.array([-np.log(0.01)]), 0)[0] == alarm


@pytest.mark.parametrize("name", ["adwin-evidence", "ph-evidence"])
def test_the_library_notices_a_drift_and_more_sensitive_settings_no_later(world: Base, name: str) -> None:
    pytest.importorskip("river")
    found = detect([make_world(i) for i in range(2)], choose([name]), SHORT)
    assert found["detected"].iloc[-1] > 0.5
    assert found["false_alarms"].iloc[0] == 0
    assert found["false_alarms"].iloc[-1] >= found["false_alarms"].iloc[0]


def test_without_the_library_its_detectors_are_left_out_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detectors_module, "find_spec", lambda name: None)
    assert [one.name for one in choose(None)] == list(NO_RIVER)
    with pytest.raises(InputError, match=r"pip install 'btfl\[drift\]'"):
        choose(["regime", "adwin-entropy"])


def test_mistakes_are_said() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean regime"):
        choose(["regimes"])
    with pytest.raises(InputError, match="longer than the warm-up of 100"):
        Protocol(before=100)
    with pytest.raises(InputError, match="no negative warm-up"):
        Protocol(draws=0)


def test_detectors_are_compared_at_the_most_sensitive_setting_allowed() -> None:
    curves = pd.DataFrame(
        {
            "detector": ["a"] * 3 + ["b"],
            "title": ["A"] * 3 + ["B"],
            "false_alarms": [0.0, 0.9, 3.0, 2.0],
            "drifts": [30.0, 20.0, 10.0, 30.0],
            "detected": [0.1, 0.8, 1.0, 1.0],
            "delay": [60.0, 12.0, 3.0, 1.0],
            "delay_low": [50.0, 9.0, 2.0, 1.0],
            "delay_high": [60.0, 60.0, 5.0, 1.0],
        }
    )
    assert at_rate(curves, 1.0)["delay"].to_dict() == {"a": 12.0}
    table = drift_table(curves, 1.0, 60)
    assert [cell.text for cell in table.rows[0].cells] == ["A", "0.90", "20", "80", "12", "9 to > 59"]
    assert "Never so few false alarms at any setting tried: B." in table.notes


def test_the_command_writes_curves_tables_and_the_figure(tmp_path: Path) -> None:
    values = {
        **read_preset("demo"),
        "clients": 2,
        "samples": 300,
        "methods": ("fedavg",),
        "training": {"rounds": 1, "local_epochs": 1},
    }
    run_bench(make_experiment(values), tmp_path / "run")
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(drift)
    sizes = ["--before", "70", "--after", "30", "--draws", "2", "--warm-up", "60"]
    names = [word for name in NO_RIVER for word in ("--detector", name)]
    for place in ("one", "two"):
        done = CliRunner().invoke(app, [str(tmp_path / "run"), *sizes, *names, "--out", str(tmp_path / place)])
        assert done.exit_code == 0, done.output
    assert "P(all EXD)" in done.output
    for name in ("drift.parquet", "drift.md", "drift.png", "drift.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert set(pd.read_parquet(tmp_path / "one" / "drift.parquet")["detector"]) == set(NO_RIVER)


def _with(bundle: ClientBundle, statistics: dict[str, NDArray[np.float64]]) -> ClientBundle:
    return ClientBundle(
        bundle.global_head,
        bundle.personal_head,
        bundle.local_likelihood,
        bundle.global_likelihood,
        bundle.local_entropy,
        bundle.global_entropy,
        statistics=statistics,
    )
