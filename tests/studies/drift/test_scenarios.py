"""Streams of our own are what they say, follow from the seed alone, and tell no method the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from numpy.typing import NDArray
from typer.testing import CliRunner

from btfl.benchmark.run import run_bench
from btfl.cli.scenarios import scenarios
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import read_preset
from btfl.studies.drift.scenarios import (
    BASE,
    FEATURE_METHODS,
    SCENARIOS,
    Picks,
    ScenarioSettings,
    draw_picks,
    find_scenario,
    make_base,
    open_run,
    run_client,
)
from btfl.studies.drift.tables import difference_table, scenario_means

LABELS = {name: np.random.default_rng(i).integers(10, size=40 + i) for i, name in enumerate(BASE)}


def draw(name: str, length: int = 600, seed: int = 3, client: int = 1, shifted: bool = False) -> Picks:
    return draw_picks(find_scenario(name), LABELS, seed, client, length, shifted=shifted)


def runs(flags: NDArray[np.bool_]) -> list[tuple[bool, int]]:
    """Lengths of equal flags in a row."""
    ends = np.flatnonzero(np.append(flags[1:] != flags[:-1], True)) + 1
    return [(bool(flags[end - 1]), int(size)) for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)]


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("percent", [5, 25, 50, 75, 95])
def test_a_mixture_has_exactly_its_share_of_external_samples_all_along(percent: int, shifted: bool) -> None:
    external = draw(f"mixed-{percent}", 4000, shifted=shifted).external
    assert external.sum() == 40 * percent
    assert np.abs(external.reshape(8, 500).mean(axis=1) - percent / 100).max() < 0.1


@pytest.mark.parametrize("period", [50, 200, 1000])
def test_switching_turns_at_every_period_and_begins_at_home(period: int) -> None:
    external = draw(f"switch-{period}", 3 * period + 7).external
    assert runs(external) == [(False, period), (True, period), (False, period), (True, 7)]


def test_slow_drift_goes_from_none_to_all_in_a_straight_line() -> None:
    share = draw("drift", 10_000).external.reshape(10, 1000).mean(axis=1)
    assert np.abs(share - (np.arange(10) + 0.5) / 10).max() < 0.05


def test_bursts_are_short_and_far_apart() -> None:
    found = runs(draw("bursts", 5000).external)[:-1]  # the end may cut the last one
    assert {size for external, size in found if external} <= set(range(5, 21))
    assert {size for external, size in found if not external} <= set(range(50, 151))
    assert len(found) > 50


def test_classes_come_one_at_a_time_first_at_home_then_abroad() -> None:
    picks = draw("classes", 300)
    labels = picks.of(LABELS)
    assert runs(picks.external) == [(False, 150), (True, 150)]
    for half in (labels[:150], labels[150:]):
        assert (np.diff(half) >= 0).all()
        assert len(set(half.tolist())) > 5


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_follows_from_seed_client_name_and_sizes_alone(name: str) -> None:
    first, again = draw(name), draw(name)
    assert (first.stream.tolist(), first.index.tolist()) == (again.stream.tolist(), again.index.tolist())
    for other in (draw(name, seed=4), draw(name, client=2)):
        assert first.index.tolist() != other.index.tolist()
    if name != "classes":  # where labels are what it is sorted by
        wrong = {base: (labels + 1) % 10 for base, labels in LABELS.items()}
        blind = draw_picks(find_scenario(name), wrong, 3, 1, 600)
        assert blind.index.tolist() == first.index.tolist()


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_pool_is_used_up_before_any_of_it_comes_again(name: str, shifted: bool) -> None:
    picks = draw(name, 1300, shifted=shifted)
    assert set(picks.stream.tolist()) == ({0, 1, 2, 3} if shifted else {0, 2})
    for streams in ((0, 1), (2, 3)):
        pool = [(i, j) for i in streams[: 2 if shifted else 1] for j in range(len(LABELS[BASE[i]]))]
        used = [pair for pair in zip(picks.stream.tolist(), picks.index.tolist(), strict=True) if pair[0] in streams]
        counts = [used.count(pair) for pair in pool]
        assert sum(counts) == len(used)
        assert max(counts) - min(counts) <= 1
        if name != "classes":  # sorting moves the rounds into one another
            assert len(set(used[: len(pool)])) == min(len(used), len(pool))


def test_picks_give_the_rows_they_name() -> None:
    parts = {name: 1000 * i + np.arange(len(LABELS[name])) for i, name in enumerate(BASE)}
    picks = draw("drift", shifted=True)
    assert picks.of(parts).tolist() == (1000 * picks.stream.astype(int) + picks.index).tolist()


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean .*switch-50\?"):
        find_scenario("swich-50")
    with pytest.raises(InputError, match="at least 2 samples"):
        draw("drift", length=1)
    with pytest.raises(InputError, match="original_exd is empty"):
        draw_picks(find_scenario("drift"), {**LABELS, "original_exd": np.empty(0, np.int64)}, 0, 0, 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {
        **read_preset("demo"),
        "clients": 3,
        "samples": 300,
        "methods": ("fedavg",),
        "training": {"rounds": 2, "local_epochs": 1},
        "seed": 5,
    }
    place = tmp_path_factory.mktemp("scenarios") / "run"
    run_bench(make_experiment(values), place)
    return place


def test_no_method_but_the_oracle_changes_its_mind_when_the_labels_do(folder: Path) -> None:
    evaluation = open_run(folder)
    base = make_base(evaluation, 1)
    poisoned = replace(base, labels={name: (labels + 1) % 10 for name, labels in base.labels.items()})
    settings = ScenarioSettings(length=90)
    weights = [
        run_client(one, evaluation.methods, ["switch-50"], settings).set_index("method")["mean_e"]
        for one in (base, poisoned)
    ]
    telling = weights[0].notna()
    assert set(weights[0][telling].index) >= {"btfl", "btfl-release", "coherent", "oracle"}
    assert set(weights[0][telling][weights[0][telling] != weights[1][telling]].index) == {"oracle"}


def test_the_memory_goes_on_across_batches(folder: Path) -> None:
    evaluation = open_run(folder, ("btfl", "coherent"))
    base = make_base(evaluation, 0)
    one, many = (
        run_client(base, evaluation.methods, ["switch-50", "bursts"], ScenarioSettings(length=200, test_batch=batch))
        for batch in (1, 32)
    )
    assert one["correct"].tolist() == many["correct"].tolist()
    np.testing.assert_allclose(one["mean_e"], many["mean_e"], rtol=1e-12)


def test_accuracy_is_that_of_its_internal_and_external_parts(folder: Path) -> None:
    evaluation = open_run(folder, ("fedavg", "personal"))
    rows = run_client(make_base(evaluation, 2), evaluation.methods, ["mixed-25"], ScenarioSettings(length=200))
    assert rows["external_share"].tolist() == [0.25, 0.25]
    together = 0.75 * rows["internal_accuracy"] + 0.25 * rows["external_accuracy"]
    np.testing.assert_allclose(rows["accuracy"], together)
    assert rows["accuracy"].nunique() == 2


def command() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(scenarios)
    return app


def test_the_command_writes_the_same_tables_twice(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        words = [str(folder), "--length", "120", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(command(), words)
        assert done.exit_code == 0, done.output
        assert "Coherent (ours)" in done.output
    for name in ("scenarios.parquet", "scenarios-means.parquet", "scenarios.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    rows = pd.read_parquet(tmp_path / "one" / "scenarios.parquet")
    assert len(rows) == 3 * len(SCENARIOS) * len(FEATURE_METHODS)
    assert set(rows["scenario_seed"]) == {5}  # the run's own
    means = pd.read_parquet(tmp_path / "one" / "scenarios-means.parquet").set_index(["scenario", "method"])
    expected = 100 * rows.groupby(["scenario", "method"])["accuracy"].mean()
    np.testing.assert_allclose(means["accuracy"], expected.loc[means.index])
    assert (means["low"] <= means["accuracy"]).all()
    assert (means["accuracy"] <= means["high"]).all()


def test_a_mean_has_the_interval_of_its_clients_and_a_difference_is_paired() -> None:
    accuracy = {"coherent": [0.5, 0.7, 0.9], "btfl": [0.4, 0.6, 0.8]}
    rows = pd.DataFrame(
        {"scenario": "drift", "method": method, "title": method, "test_batch": 32, "client": client, "accuracy": value}
        | {"internal_accuracy": value, "external_accuracy": value, "mean_e": 0.5}
        for method, values in accuracy.items()
        for client, value in enumerate(values)
    )
    found = scenario_means(rows).set_index("method").loc["coherent"]
    assert found["accuracy"] == pytest.approx(70)
    assert (found["low"], found["high"]) == (pytest.approx(50, abs=5), pytest.approx(90, abs=5))
    table = difference_table(rows)
    assert table is not None
    assert table.rows[0].cells[1].text == "+10.00 (+10.0 to +10.0)"  # clients differ, the difference does not
    assert difference_table(rows[rows["method"] == "btfl"]) is None


@pytest.mark.parametrize(
    ("methods", "error", "expected"),
    [
        (("memo",), InputError, "works on images"),
        (("btfl", "fedrep"), StorageError, "no federation trained with the recipe 'fedrep'"),
        (("coherent[forgeting=0.9]",), UnknownNameError, "Did you mean forgetting"),
    ],
)
def test_a_method_that_cannot_be_run_here_says_why(
    folder: Path, methods: tuple[str, ...], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        open_run(folder, methods)
