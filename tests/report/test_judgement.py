"""Calibration, detection and the Pareto front, on cases small enough to see through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl.report.calibration import log_loss, reliability
from btfl.report.detection import area, roc
from btfl.report.figures.judgement import pareto_front, trade_off
from btfl.report.groups import group_runs, load_runs
from btfl.report.style import style_of
from drawn_runs import make_run


def test_calibration_error_by_hand() -> None:
    # Two in the bin around 0.9, one right: 0.9 against 0.5. Two in the bin around 0.5, one right: 0.5 against 0.5.
    found = reliability(np.array([0.9, 0.9, 0.5, 0.5]), np.array([True, False, True, False]), bins=10)
    assert found.error == pytest.approx(0.5 * 0.4 + 0.5 * 0.0)
    assert found.share.tolist() == [0.5, 0.5]
    assert reliability(np.array([1.0, 0.0]), np.array([True, False])).error == 0.0


def test_log_loss_stays_finite() -> None:
    assert log_loss(np.array([1.0, np.exp(-2.0)])) == pytest.approx(1.0)
    assert np.isfinite(log_loss(np.array([0.0])))


def test_areas_by_hand() -> None:
    external = np.array([True, True, False, False])
    assert area(np.array([0.9, 0.8, 0.2, 0.1]), external) == 1.0
    assert area(np.array([0.1, 0.2, 0.8, 0.9]), external) == 0.0
    assert area(np.full(4, 0.5), external) == 0.5  # equal scores tell nothing
    assert area(np.array([0.9, 0.3, 0.5, 0.1]), external) == 0.75  # three of four pairs in order


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_the_area_is_the_chance_of_a_right_order(points: list[tuple[int, bool]]) -> None:
    scores, external = np.array([s for s, _ in points], dtype=float), np.array([x for _, x in points])
    if external.all() or not external.any():
        return
    pairs = scores[external][:, None] - scores[~external][None, :]
    assert area(scores, external) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    false, true = roc(scores, external)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert (false[-1], true[-1]) == (1.0, 1.0)


def test_nothing_on_the_front_is_beaten_in_both() -> None:
    points = [(1.0, 5.0), (2.0, 4.0), (1.5, 4.5), (1.0, 4.0), (3.0, 1.0), (3.0, 0.5)]
    assert pareto_front(points) == [(1.0, 5.0), (1.5, 4.5), (2.0, 4.0), (3.0, 1.0)]


@pytest.mark.parametrize(("methods", "drawn"), [(("fedavg", "btfl"), False), (("fedavg", "fedavg-ft"), True)])
def test_a_front_is_drawn_and_named_if_it_is_more_than_one_method(
    tmp_path: Path, methods: tuple[str, ...], drawn: bool
) -> None:
    skill = {"fedavg": 0.5, "fedavg-ft": 0.5, "btfl": 0.95}  # one beats the other everywhere; two that differ by chance
    (group,) = group_runs(load_runs([make_run(tmp_path / "run", methods=methods, skill=skill)]))
    figure = trade_off(group)
    assert drawn == any(len(np.atleast_1d(line.get_xdata())) > 1 for line in figure.axes[0].lines)
    assert drawn == ("Pareto front" in [text.get_text() for text in figure.legends[0].get_texts()])


def test_every_method_of_the_registry_has_a_look_of_its_own() -> None:
    from btfl.methods.registry import METHODS

    looks = [style_of(name) for name in METHODS]
    assert len(set(looks)) == len(looks)
    assert style_of("btfl[count=after]").colour == style_of("btfl").colour
    assert style_of("mine:Method") == style_of("mine:Method")
