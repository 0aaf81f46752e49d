"""Compiled steps answer as numpy does; numpy does what they are not made for; nothing they are given harms them."""

from __future__ import annotations

import copy
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from btfl import Btfl, ClientBundle, Coherent, Summary
from btfl.core.compiled import Walk, walk_of
from btfl.core.products import LARGE
from btfl.errors import InputError
from btfl.methods.base import Method
from making import make_bundle, make_stream
from steps import steps_by

METHODS: dict[str, tuple[type[Btfl] | type[Coherent], int, int]] = {"btfl": (Btfl, 2, 8), "coherent": (Coherent, 4, 3)}
each_method = pytest.mark.parametrize("name", METHODS)


def bundle_of(dimensions: int = 16, classes: int = 4, seed: int = 0, apart: float = 0.0) -> ClientBundle:
    """Make a bundle with sums; the client's features may lie apart from everyone's."""
    rng, plain = np.random.default_rng(seed), make_bundle(dimensions, classes, seed)
    z, y = np.maximum(rng.normal(0.4, 1.0, (200, dimensions)), 0.0), rng.integers(classes, size=200)
    own, others = Summary.of(z[:60] + apart, y[:60], classes), Summary.of(z[60:], y[60:], classes)
    heads = plain.global_head, plain.personal_head
    return ClientBundle.of(*heads, own, own + others, features=z[:60] + apart)


def made(name: str, by: str, bundle: ClientBundle, **settings: Any) -> Btfl | Coherent:
    with steps_by(by):
        method = METHODS[name][0](bundle, **settings)
    assert (method.compiled is not None) == (by == "compiled")
    return method


def assert_agree(one: Method, other: Method, stream: np.ndarray) -> None:
    answers = one.predict(stream)
    np.testing.assert_allclose(answers, other.predict(stream), rtol=0, atol=1e-11)
    np.testing.assert_allclose(answers.sum(axis=1), 1.0, atol=1e-12)
    for column, values in one.trace.items():
        assert values.dtype == other.trace[column].dtype
        np.testing.assert_allclose(values, other.trace[column], rtol=1e-9, atol=1e-9, err_msg=column)
    assert one.state == pytest.approx(other.state, rel=1e-9)


@given(
    st.integers(0, 99),
    st.integers(1, 70),
    st.integers(2, 41),
    st.floats(0.0, 60.0),  # long features: logits are too large for a plain exponential
    st.fixed_dictionaries(
        {
            "count": st.sampled_from(["before", "after"]),
            "global_from": st.sampled_from(["all", "others"]),
            "prune_above": st.sampled_from([4.0, 16.0, 100.0]),
            "prune_to": st.sampled_from([0.5, 1.0, 2.0]),
            "global_entropy_scale": st.sampled_from([None, 4.6]),
            "log_tau_limit": st.sampled_from([1.0, 30.0]),
            "use_history": st.booleans(),
            "use_characteristic": st.booleans(),
            "use_entropy": st.booleans(),
        }
    ),
)
def test_btfl_answers_as_numpy_does(
    seed: int, dimensions: int, classes: int, scale: float, settings: dict[str, Any]
) -> None:
    bundle = make_bundle(dimensions, classes, seed)
    stream = scale * make_stream(bundle, 40, seed)
    assert_agree(made("btfl", "compiled", bundle, **settings), made("btfl", "numpy", bundle, **settings), stream)


@given(
    st.integers(0, 99),
    st.integers(1, 70),
    st.integers(2, 41),
    st.floats(0.0, 60.0),
    st.sampled_from([0.0, 0.5]),
    st.fixed_dictionaries(
        {
            "global_heads": st.sampled_from(["fedavg", "generative", "both"]),
            "local_heads": st.sampled_from(["personal", "generative", "both"]),
            "inverse_kappa": st.sampled_from([0.0, 0.3]),  # the second: class means of the client's own
            "forgetting": st.sampled_from([0.5, 0.99]),
            "log_tau_limit": st.sampled_from([0.5, 30.0]),
        }
    ),
)
def test_coherent_answers_as_numpy_does(
    seed: int, dimensions: int, classes: int, scale: float, apart: float, settings: dict[str, Any]
) -> None:
    bundle = bundle_of(dimensions, classes, seed, apart)
    stream = scale * make_stream(bundle, 40, seed)
    compiled, numpy = (made("coherent", by, bundle, **settings) for by in ("compiled", "numpy"))
    assert_agree(compiled, numpy, stream)


@each_method
@given(st.lists(st.integers(1, 400), min_size=1, max_size=5), st.sampled_from([np.float32, np.float64]))
def test_a_stream_may_be_cut_and_kept_in_any_way(name: str, cuts: list[int], dtype: type) -> None:
    bundle = bundle_of(33, 7)
    stream = make_stream(bundle, 400).astype(np.float32)
    whole, parts = made(name, "compiled", bundle), made(name, "compiled", bundle)
    ends = sorted({0, *(cut for cut in cuts if cut < 400), 400})
    answers = [parts.predict(stream[i:j].astype(dtype)) for i, j in pairwise(ends)]
    assert np.concatenate(answers).tobytes() == whole.predict(stream).tobytes()
    assert parts.state == whole.state


@each_method
def test_what_is_no_plain_array_is_turned_into_one(name: str) -> None:
    bundle = bundle_of()
    stream = np.round(make_stream(bundle, 6), 1)
    expected = made(name, "compiled", bundle).predict(stream)
    askew = np.frombuffer(b"-" + stream.tobytes(), np.float64, offset=1).reshape(stream.shape)  # as in a request's body
    assert not askew.flags.aligned
    strided, others = np.repeat(stream, 2, axis=0)[::2], (np.asfortranarray(stream), stream.astype(">f8"))
    for other in (stream.tolist(), askew, strided, *others):
        assert made(name, "compiled", bundle).predict(other).tobytes() == expected.tobytes()


@each_method
@pytest.mark.parametrize("samples", [1, 5, 300])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e200])
def test_a_batch_with_one_bad_number_is_refused_and_leaves_the_memory(name: str, samples: int, wrong: float) -> None:
    bundle = bundle_of()
    method, stream = made(name, "compiled", bundle), make_stream(bundle, samples)
    method.predict(stream)
    before, stream[-1, 3] = method.state, wrong
    with pytest.raises(InputError, match=r"NaN or infinite|too large"):
        method.predict(stream)
    assert method.state == before


@each_method
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((2, 5)), "5 dimensions, but 16 are expected"),
        (np.zeros(16), "for one sample pass"),
        (np.zeros((0, 16)), "no sample"),
        (np.zeros((2, 16), dtype=complex), "real ones"),
        ([["a"] * 16], "numbers"),
    ],
)
def test_what_is_not_features_gets_the_same_words(name: str, wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(name, "compiled", bundle_of()).predict(wrong)


@each_method
def test_a_copy_goes_its_own_way(name: str) -> None:
    bundle = bundle_of()
    method, stream = made(name, "compiled", bundle), make_stream(bundle)
    method.predict(stream[:50])
    other, state = copy.deepcopy(method), method.state
    expected, trace = other.predict(stream[50:]), other.trace
    assert method.state == state
    assert method.predict(stream[50:]).tobytes() == expected.tobytes()
    assert (trace["e"] == method.trace["e"]).all()


def test_settings_for_experiments_and_large_heads_are_left_to_numpy() -> None:
    bundle = bundle_of()
    with steps_by("compiled"):
        for left in (
            Btfl(bundle, preset="release"),
            Btfl(bundle, prune_above=101.0),
            Btfl(bundle, precision="single"),
            Coherent(bundle, memory="soft"),
            Coherent(bundle, weight="expectation"),
            Coherent(bundle, precision="single"),
            Btfl(make_bundle(256, LARGE // 512)),
        ):
            assert left.compiled is None, left


WALKS = {name: f"btfl.methods.{name}._compiled" for name in METHODS}
few = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.int64]),
    arrays.array_shapes(max_dims=2, max_side=6),
    elements=st.just(1),
)


@each_method
@given(plan=few, features=few, answers=few, found=few, length=st.integers(0, 5))
def test_arrays_that_do_not_fit_are_refused(
    name: str, plan: np.ndarray, features: np.ndarray, answers: np.ndarray, found: np.ndarray, length: int
) -> None:
    walk = _walk(name)
    with suppress(ValueError, TypeError):
        assert walk(plan, features, (1.0,) * length, answers, found) is None


@each_method
def test_a_plan_of_another_size_is_refused(name: str) -> None:
    _, remembered, columns = METHODS[name]
    walk, memory = _walk(name), (0.3, 0.3, 1.0, 1.0)[-remembered:]
    for size in range(2000):
        plan = np.full(size, 3.0)  # as a number of heads it is right, as a number of points it may be
        fits = walk(plan, np.ones((2, 5)), memory, np.empty((2, 3)), np.empty((columns, 2))) is not None
        assert fits == (size == {"coherent": 7 + 3 + 16 * 6, "btfl": 17 + 4 * 3 + 2 * 5 + 8 * 6}[name])


@each_method
@pytest.mark.parametrize("memory", [(), (1.0,) * 5, ("a",) * 4, [1.0, 1.0], None])
def test_a_memory_of_another_kind_is_refused(name: str, memory: Any) -> None:
    method = made(name, "compiled", bundle_of())
    assert method.compiled is not None
    with pytest.raises((ValueError, TypeError)):
        method.compiled.answer(make_stream(method.bundle, 3), memory)


def _walk(name: str) -> Walk:
    with steps_by("compiled"):
        walk = walk_of(WALKS[name])
    assert walk is not None
    return walk
