"""A sample that comes alone takes a shorter way through the core, and comes out the same to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl import Btfl, BtflSettings, ClientBundle
from btfl.core.softmax import entropy, entropy_of_parts, log_softmax, softmax_parts
from btfl.errors import InputError
from btfl.methods.btfl import BtflTrace
from making import make_bundle, make_stream

knobs = st.fixed_dictionaries(
    {
        "count": st.sampled_from(["before", "after"]),
        "smoothing": st.sampled_from(["add-one", "squeeze"]),
        "global_from": st.sampled_from(["all", "others"]),
        "prune_above": st.sampled_from([4.0, 16.0]),
        "global_entropy_scale": st.sampled_from([None, 4.6]),
        "log_tau_limit": st.sampled_from([1.0, 30.0]),
        "use_history": st.booleans(),
        "use_characteristic": st.booleans(),
        "use_entropy": st.booleans(),
    }
)


def with_entropies(bundle: ClientBundle, mean: float) -> ClientBundle:
    return ClientBundle(
        bundle.global_head,
        bundle.personal_head,
        bundle.local_likelihood,
        bundle.global_likelihood,
        local_entropy=mean,
        global_entropy=mean * 1.5,
    )


def assert_same_bits(bundle: ClientBundle, stream: np.ndarray, settings: BtflSettings) -> BtflTrace:
    together, alone = Btfl(bundle, settings), Btfl(bundle, settings)
    whole, found, traces = together.predict(stream), [], []
    for i in range(len(stream)):
        found.append(alone.predict(stream[i : i + 1]))
        traces.append(alone.trace)
    assert np.concatenate(found).tobytes() == whole.tobytes()
    assert alone.state == together.state
    for name, expected in together.trace.items():
        parts = np.concatenate([trace[name] for trace in traces])
        assert parts.dtype == expected.dtype
        assert (parts == expected).all(), name
    return together.trace


@given(
    st.integers(0, 30),
    st.integers(1, 90),
    st.integers(2, 33),
    st.floats(0.001, 3.0),  # small means drive tau_hat to its limits: both ways to e are taken
    st.floats(0.0, 50.0),
    knobs,
)
def test_one_by_one_is_the_batch_to_the_bit(
    seed: int, dimensions: int, classes: int, mean: float, scale: float, changes: dict[str, Any]
) -> None:
    bundle = with_entropies(make_bundle(dimensions, classes, seed=seed), mean)
    assert_same_bits(bundle, make_stream(bundle, 40, seed) * scale, BtflSettings(**changes))


def test_a_long_stream_with_every_kind_of_event_and_of_ratio() -> None:
    bundle = make_bundle(64, 10, samples=400)
    trace = assert_same_bits(bundle, make_stream(bundle, 3_000), BtflSettings())
    assert set(trace.event.tolist()) == {-1, 0, 1}
    far = np.abs(trace.log_tau_hat) > np.log(10)
    assert far.any()
    assert not far.all()


@pytest.mark.parametrize(("dimensions", "classes"), [(512, 65), (512, 1_000), (1, 1), (7, 2)])
def test_wide_and_narrow_heads(dimensions: int, classes: int) -> None:
    bundle = make_bundle(dimensions, classes, samples=30)
    assert_same_bits(bundle, make_stream(bundle, 60), BtflSettings())


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_other_kinds_of_numbers_give_the_same(preset: str) -> None:
    bundle = make_bundle(24, 5)
    stream = make_stream(bundle, 50).astype(np.float32)
    settings = BtflSettings.preset(preset, batch="sample")
    expected = Btfl(bundle, settings).predict(stream.astype(np.float64))
    columns = np.asfortranarray(stream)  # rows of it are not contiguous
    for rows in (
        [stream[i : i + 1] for i in range(50)],
        [columns[i : i + 1] for i in range(50)],
        [stream[i : i + 1].astype(np.float64).tolist() for i in range(50)],
    ):
        method = Btfl(bundle, settings)
        assert np.concatenate([method.predict(row) for row in rows]).tobytes() == expected.tobytes()


def test_a_wrong_sample_is_refused_and_leaves_the_state_alone() -> None:
    bundle = make_bundle()
    method = Btfl(bundle)
    method.predict(make_stream(bundle, 9))
    before, good = method.state, make_stream(bundle, 1)
    for value, words in ((np.nan, "NaN or infinite"), (np.inf, "NaN or infinite"), (1e200, "too large")):
        broken = good.copy()
        broken[0, 3] = value
        with pytest.raises(InputError, match=words):
            method.predict(broken)
    assert method.state == before


def test_a_prediction_is_its_owners() -> None:
    bundle = make_bundle()
    method, stream = Btfl(bundle), make_stream(bundle, 2)
    kept = stream.copy()
    first = method.predict(stream[:1])
    copy = first.copy()
    method.predict(stream[1:])
    assert first.tobytes() == copy.tobytes()
    assert stream.tobytes() == kept.tobytes()


@given(st.integers(0, 50), st.integers(1, 40), st.sampled_from([0.0, 0.1, 3.0, 1e3, 1e100]))
def test_one_exponential_gives_probabilities_and_entropy(seed: int, classes: int, scale: float) -> None:
    logits = np.random.default_rng(seed).normal(size=(6, classes)) * scale
    parts = softmax_parts(logits.copy(), np.abs(logits).max(axis=1, keepdims=True) > 100)
    weights, totals, found = parts[0], parts[1], entropy_of_parts(*parts[:3])
    log_probabilities = log_softmax(logits)
    assert weights / totals[:, None] == pytest.approx(np.exp(log_probabilities), abs=1e-14)
    assert found == pytest.approx(entropy(log_probabilities), abs=1e-12)
    assert (found >= 0).all()


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e6])
def test_large_features_among_small_ones_do_not_overflow(scale: float) -> None:
    bundle = make_bundle()
    stream = make_stream(bundle, 60)
    stream[::7] *= scale
    assert_same_bits(bundle, stream, BtflSettings())
    assert Btfl(bundle).predict(stream).sum(axis=1) == pytest.approx(1)
