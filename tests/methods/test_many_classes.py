"""BTFL and Coherent with so many classes that their heads are rounded and long batches answered in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl import Btfl, ClientBundle, Coherent, Summary
from btfl.core.products import LARGE
from btfl.methods.base import Method
from btfl.monitor.levels import identity

DIMENSIONS, CLASSES, SAMPLES = 160, 230, 90
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def bundle() -> ClientBundle:
    rng = np.random.default_rng(0)
    assert 2 * DIMENSIONS * CLASSES >= LARGE
    own, labels = np.maximum(rng.normal(0.4, 1.0, (300, DIMENSIONS)), 0.0), rng.integers(CLASSES // 2, size=300)
    others = np.maximum(rng.normal(0.7, 1.0, (600, DIMENSIONS)), 0.0)
    mine = Summary.of(own, labels, CLASSES)
    one, two = ((rng.normal(size=(CLASSES, DIMENSIONS)) / 8, rng.normal(size=CLASSES)) for _ in range(2))
    everyone = mine + Summary.of(others, rng.integers(CLASSES, size=600), CLASSES)
    return ClientBundle.of(one, two, mine, everyone, features=own)


@pytest.fixture(scope="module")
def stream() -> Floats:
    rng = np.random.default_rng(1)
    return np.maximum(rng.normal(rng.choice([0.4, 0.7], (SAMPLES, 1)), 1.0, (SAMPLES, DIMENSIONS)), 0.0)


def stack_of(method: Method) -> Any:
    return method._heads if isinstance(method, Btfl) else method._stack  # type: ignore[attr-defined]


def in_pieces(method: Method, stream: Floats, *cuts: int) -> tuple[Floats, dict[str, Floats]]:
    answers, traces = [], []
    for piece in np.split(stream, cuts):
        answers.append(method.predict(piece))
        traces.append(method.trace)
    return np.concatenate(answers), {name: np.concatenate([t[name] for t in traces]) for name in traces[0]}


@pytest.mark.parametrize("make", [Btfl, Coherent])
def test_cuts_and_parts_change_no_bit(make: type[Method], bundle: ClientBundle, stream: Floats) -> None:
    whole = make(bundle)
    answers, trace = in_pieces(whole, stream)
    assert answers.sum(axis=1) == pytest.approx(1, abs=1e-12)
    in_parts = make(bundle)
    stack_of(in_parts).rows_at_once = 32  # as if there were many more classes
    for method, cuts in ((make(bundle), range(1, SAMPLES)), (make(bundle), (1, 9, 40, 41)), (in_parts, ())):
        found, told = in_pieces(method, stream, *cuts)
        assert found.tobytes() == answers.tobytes()
        assert method.state == whole.state
        for name, column in trace.items():
            assert (told[name] == column).all()


@pytest.mark.parametrize("make", [Btfl, Coherent])
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-12), ("single", 1e-5)])
def test_without_rounding_cuts_agree_closely(
    make: type[Method], precision: str, tolerance: float, bundle: ClientBundle, stream: Floats
) -> None:
    whole, _ = in_pieces(make(bundle, precision=precision), stream)
    alone, _ = in_pieces(make(bundle, precision=precision), stream, *range(1, SAMPLES))
    rounded, _ = in_pieces(make(bundle), stream)
    assert alone == pytest.approx(whole, abs=tolerance)
    assert whole == pytest.approx(rounded, abs=1e-5)


def test_a_prior_for_the_whole_batch_is_not_cut(bundle: ClientBundle, stream: Floats) -> None:
    whole, other = Btfl(bundle, preset="release"), Btfl(bundle, preset="release")
    stack_of(other).rows_at_once = 32
    assert other.predict(stream).tobytes() == whole.predict(stream).tobytes()


@pytest.mark.parametrize("make", [Btfl, Coherent])
def test_levels_of_alarms_found_with_one_precision_hold_with_all(make: type[Method], bundle: ClientBundle) -> None:
    assert identity(make(bundle, precision="single")) == identity(make(bundle))
    assert "precision" not in identity(make(bundle))
