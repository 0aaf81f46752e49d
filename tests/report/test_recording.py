"""A recorded method answers as before, and keeps all of it, in batches of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import btfl
from btfl.errors import InputError
from btfl.methods.heads import GlobalHead


def _client() -> tuple[btfl.ClientBundle, NDArray[np.float64]]:
    y = np.arange(200) % 10
    z = np.maximum(np.random.default_rng(0).normal(size=(200, 32)) + 2 * np.eye(10, 32)[y], 0)
    own, other = (btfl.Summary.of(z[rows], y[rows], classes=10) for rows in (y < 5, y >= 5))
    bundle = btfl.ClientBundle.of(np.eye(10, 32), 3 * np.eye(10, 32), own, own + other, features=z[y < 5])
    return bundle, np.concatenate([z[y < 5][:30], z[y >= 5][:30]])


BUNDLE, STREAM = _client()


@given(st.lists(st.integers(0, 60), max_size=6), st.sampled_from([btfl.Btfl, btfl.Coherent]))
def test_what_is_recorded_is_what_was_answered(cuts: list[int], kind: type[btfl.Method]) -> None:
    alone = kind(BUNDLE)
    answers = alone.predict(STREAM)
    watched = btfl.record(kind(BUNDLE))
    parts = [watched.predict(part) for part in np.split(STREAM, sorted(cuts)) if len(part)]
    np.testing.assert_array_equal(np.concatenate(parts), answers)
    np.testing.assert_array_equal(watched.probabilities, answers)
    assert set(watched.trace) == set(alone.trace)
    np.testing.assert_array_equal(watched.trace.e, alone.trace["e"])
    assert watched.state == alone.state
    assert len(watched) == 60
    watched.reset()
    assert len(watched) == 0


def test_the_frame_has_a_row_for_each_sample_and_the_plot_shows_itself() -> None:
    watched = btfl.record(btfl.Btfl(BUNDLE))
    watched.predict(STREAM)
    frame = watched.frame
    assert list(frame["position"]) == list(range(60))
    np.testing.assert_array_equal(frame["predicted"], watched.probabilities.argmax(axis=1))
    assert {"e", "a", "b", "event", "confidence"} <= set(frame.columns)
    assert watched.plot()._repr_png_().startswith(b"\x89PNG")
    known = watched.plot(external=np.arange(60) >= 30, title="Mine").figure()
    assert len(known.axes) == 3  # e, memory, events
    assert known.axes[0].get_title() == "Mine"
    coherent = btfl.record(btfl.Coherent(BUNDLE))
    coherent.predict(STREAM)
    assert len(coherent.plot().figure().axes) == 1
    assert repr(watched).startswith("Recording(60 samples of Btfl(")


def test_mistakes_are_one_sentence() -> None:
    watched = btfl.record(btfl.Btfl(BUNDLE))
    with pytest.raises(InputError, match="nothing is recorded yet: call predict first"):
        watched.plot()
    watched.predict(STREAM)
    wrong: list[Any] = [np.zeros(3, dtype=bool), np.zeros(60), ["no"] * 60]
    for external in wrong:
        with pytest.raises(InputError, match="external must say true or false for each of 60 recorded samples"):
            watched.plot(external=external)
    bare = btfl.record(GlobalHead(BUNDLE))
    bare.predict(STREAM)
    with pytest.raises(InputError, match="FedAvg has no weight e of the global head"):
        bare.plot()
