"""The method: the paper's steps in order, independent of batching, restartable, finite for every finite input."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl import Btfl, BtflSettings, ClientBundle, DiscretisedLikelihood, expected_weight
from btfl.errors import InputError
from making import make_bundle, make_stream


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max())
    total: float = exponentials.sum()
    return np.asarray(exponentials / total)


def entropy(p: np.ndarray) -> float:
    return float(-(p * np.log(p)).sum())


def the_page(bundle: ClientBundle, stream: np.ndarray) -> list[tuple[np.ndarray, float, float, float, float, int]]:
    """The spec's steps 1 to 6, one sample at a time, written as plainly as possible."""
    a, b, d, rows = 1.0, 1.0, bundle.dimensions, []
    mean_l, mean_g = bundle.mean_entropies
    for z in stream:
        bias = 0 if bundle.global_head.bias is None else bundle.global_head.bias
        y_g = softmax(bundle.global_head.weight @ z + bias)
        y_l = softmax(bundle.personal_head.weight @ z)
        h_l, h_g = entropy(y_l), entropy(y_g)
        log_q = []
        for likelihood in (bundle.local_likelihood, bundle.global_likelihood):
            n = likelihood.count
            p = (n * likelihood.frequencies + 1) / (n + 2)
            log_q.append(float(np.log(np.where(np.round(np.tanh(z)) == 0, p, 1 - p)).sum()))
        log_tau = log_q[0] - log_q[1]
        event = 0
        if log_tau > 0 and h_l < mean_l and h_g > mean_g:
            b, event = b + 1, -1
        elif log_tau < 0 and h_l > mean_l and h_g < mean_g:
            a, event = a + 1, 1
        if a + b > 16:
            a, b = 1 + a / (a + b), 1 + b / (a + b)
        u_l = math.exp((h_l - mean_l) / mean_l)
        u_g = math.exp((h_g - mean_g) / mean_g)
        tau_hat = math.exp(u_l * log_q[0] / d - u_g * log_q[1] / d)
        e = expected_weight(a, b, tau_hat)
        rows.append((e * y_g + (1 - e) * y_l, e, a, b, tau_hat, event))
    return rows


def test_the_adapter_does_what_the_page_says(bundle: ClientBundle) -> None:
    stream = make_stream(bundle, 300)
    method = Btfl(bundle)
    found, expected = method.predict(stream), the_page(bundle, stream)
    trace = method.trace
    assert {event for *_, event in expected} == {-1, 0, 1}  # the stream exercises all of it
    assert found == pytest.approx(np.array([row[0] for row in expected]), abs=1e-12)
    for values, column in zip((trace.e, trace.a, trace.b, trace.tau_hat, trace.event), range(1, 6), strict=True):
        assert values == pytest.approx(np.array([row[column] for row in expected], dtype=float), rel=1e-10)
    assert trace.tau == pytest.approx(np.exp(trace.log_tau))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 5), st.sampled_from(["before", "after"]))
def test_predictions_do_not_depend_on_how_the_stream_is_cut(cuts: list[int], seed: int, count: str) -> None:
    bundle = make_bundle(seed=seed, dimensions=24, classes=7)
    stream = make_stream(bundle, 150)
    settings = BtflSettings(count=count)  # type: ignore[arg-type]
    whole = Btfl(bundle, settings).predict(stream)
    method, parts, start = Btfl(bundle, settings), [], 0
    for size in [*cuts, len(stream)]:
        if start < len(stream):
            parts.append(method.predict(stream[start : start + size]))
            start += size
    assert np.concatenate(parts).tobytes() == whole.tobytes()  # bit for bit


def test_a_device_can_be_switched_off_anywhere_and_go_on(bundle: ClientBundle, tmp_path: Path) -> None:
    stream = make_stream(bundle, 120)
    bundle.save(tmp_path / "bundle")
    np.save(tmp_path / "stream.npy", stream)
    expected = Btfl(bundle).predict(stream)
    script = (
        "import json, sys, numpy as np; from pathlib import Path; from btfl import *\n"
        "folder, start, stop = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])\n"
        "method = Btfl(ClientBundle.load(folder / 'bundle'))\n"
        "state = folder / 'state.json'\n"
        "if state.exists(): method.restore(json.loads(state.read_text()))\n"
        "for i in range(start, stop):\n"
        "    row = method.predict(np.load(folder / 'stream.npy')[i : i + 1])\n"
        "    np.save(folder / f'{i}.npy', row)\n"
        "state.write_text(json.dumps(method.state))\n"
    )
    for start, stop in ((0, 1), (1, 47), (47, 120)):
        subprocess.run([sys.executable, "-c", script, str(tmp_path), str(start), str(stop)], check=True)
    found = np.concatenate([np.load(tmp_path / f"{i}.npy") for i in range(120)])
    assert found.tobytes() == expected.tobytes()


def test_state_is_small_json_and_reset_forgets(bundle: ClientBundle) -> None:
    method = Btfl(bundle)
    first = method.predict(make_stream(bundle))
    assert len(json.dumps(method.state)) < 200
    assert method.state["seen"] == len(first)
    method.reset()
    assert method.state == {"a": 1.0, "b": 1.0, "seen": 0}
    assert method.predict(make_stream(bundle)).tobytes() == first.tobytes()


def test_a_wrong_state_is_refused(bundle: ClientBundle) -> None:
    method = Btfl(bundle)
    for state, words in (
        ({"a": 1.0}, "lacks b, seen"),
        ({"a": math.nan, "b": 1, "seen": 0}, "out of range"),
        ({"a": -3, "b": 1, "seen": 0}, "out of range"),
        ({"a": "x", "b": 1, "seen": 0}, "a lies between 1 and 15"),
    ):
        with pytest.raises(InputError, match=words):
            method.restore(state)
    with pytest.raises(InputError, match="call predict first"):
        _ = method.trace


@pytest.mark.parametrize("preset", ["paper", "release"])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e3, 1e100])
def test_all_stays_finite_for_every_finite_input(preset: str, scale: float) -> None:
    bundle = make_bundle(dimensions=64, classes=5)
    method = Btfl(bundle, BtflSettings.preset(preset))
    probabilities = method.predict(make_stream(bundle) * scale)
    assert np.isfinite(probabilities).all()
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-9)
    trace = method.trace
    for values in (trace.e, trace.tau, trace.tau_hat, trace.a, trace.b):
        assert np.isfinite(values).all()
    assert ((trace.e >= 0) & (trace.e <= 1)).all()


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_a_client_with_a_single_class_and_no_entropy_works(preset: str) -> None:
    rng = np.random.default_rng(0)
    own, other = np.zeros((1, 8)), rng.random((50, 8)) * 2  # a single sample, all of it off
    local = DiscretisedLikelihood.fit(own)
    sure = np.zeros((3, 8))
    bundle = ClientBundle(
        rng.normal(size=(3, 8)),
        (sure, np.array([900.0, 0.0, 0.0])),  # always sure of one class
        local,
        DiscretisedLikelihood.average([local, DiscretisedLikelihood.fit(other)]),
        local_entropy=0.0,
        global_entropy=0.0,
    )
    method = Btfl(bundle, BtflSettings.preset(preset))
    for batch in (own, other, other * 1e6):
        assert np.isfinite(method.predict(batch)).all()


def test_wrong_features_are_refused_and_leave_the_state_alone(bundle: ClientBundle) -> None:
    method = Btfl(bundle)
    method.predict(make_stream(bundle))
    before = method.state
    good = make_stream(bundle, 4)
    broken = good.copy()
    broken[2, 5] = np.nan
    for features, words in (
        (good[:, :-1], "16 are expected"),
        (good[:0], "empty batch"),
        (good[0], r"features\[None\]"),
        (broken, "first in sample 2"),
        (np.where(np.isnan(broken), np.inf, broken), "infinite"),
    ):
        with pytest.raises(InputError, match=words):
            method.predict(features)
    assert method.state == before
