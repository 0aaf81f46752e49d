"""The presets: each of the published program's choices, one by one."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from btfl import Btfl, BtflSettings
from btfl.core.arithmetic import ARRAYS
from btfl.errors import BtflError, UnknownNameError
from btfl.methods.btfl import memory
from btfl.methods.btfl.evidence import log_rectified_ratio
from making import make_bundle, make_stream

RELEASE = BtflSettings.preset("release")
BUNDLE = make_bundle(clients=4)
STREAM = make_stream(BUNDLE, 64)


def run(**changes: Any) -> Btfl:
    method = Btfl(BUNDLE, BtflSettings.preset("release", **changes))
    method.predict(STREAM)
    return method


def test_frequencies_are_squeezed_towards_the_middle() -> None:
    likelihood = BUNDLE.local_likelihood
    assert likelihood.smoothed(RELEASE.smoothing) == pytest.approx(0.6 * likelihood.frequencies + 0.2)


def test_the_global_likelihood_is_that_of_the_others() -> None:
    others = BUNDLE.global_likelihood.without(BUNDLE.local_likelihood)
    local = BUNDLE.local_likelihood.log_likelihood(STREAM, "squeeze")
    assert run().trace.log_tau == pytest.approx(local - others.log_likelihood(STREAM, "squeeze"), abs=1e-10)
    everyone = BUNDLE.global_likelihood.log_likelihood(STREAM, "squeeze")
    assert run(global_from="all").trace.log_tau == pytest.approx(local - everyone, abs=1e-10)


def test_the_global_entropy_is_measured_against_log_100() -> None:
    assert RELEASE.global_entropy_scale == math.log(100)
    log_q, h = np.array([-40.0]), np.array([0.7])
    settings = BtflSettings(global_entropy_scale=math.log(100))
    found = log_rectified_ratio(ARRAYS, (log_q, log_q), (h, h), (0.5, 0.5), 64, settings)
    u_l, u_g = math.exp(0.2 / 0.5), math.exp((0.7 - math.log(100)) / math.log(100))
    assert found == pytest.approx((u_l - u_g) * -40.0 / 64)


def test_the_event_test_still_uses_the_clients_own_mean() -> None:
    trace = run().trace
    external = (trace.log_tau < 0) & (trace.local_entropy > 0.4) & (trace.global_entropy < 0.6)
    assert external.any()
    assert ((trace.event == 1) == external).all()


def test_the_ratio_is_squashed_and_mirrored() -> None:
    plain, squashed = run(squash=None).trace.tau_hat, run().trace.tau_hat
    assert plain.min() < 1 < plain.max()
    above = plain > 1
    assert squashed[above] == pytest.approx(4 * np.tanh(plain[above] - 1) + 1)
    assert squashed[~above] == pytest.approx(1 / (4 * np.tanh(1 / plain[~above] - 1) + 1))


def test_e_can_be_taken_by_the_published_trapezoid() -> None:
    assert RELEASE.expectation == "exact"
    trace = run(expectation="trapezoid").trace
    m = np.linspace(0.01, 0.99, 100)
    # the first batch is judged with Beta(1, 1), whose density is 1
    expected = [np.trapezoid(m / (m + (1 - m) * tau), m) for tau in trace.tau_hat]
    assert trace.e == pytest.approx(np.array(expected), rel=1e-12)


def test_log_probabilities_are_mixed() -> None:
    method = Btfl(BUNDLE, RELEASE)
    found, e = method.predict(STREAM), method.trace.e[:, None]
    logits_g, logits_l = BUNDLE.global_head.logits(STREAM), BUNDLE.personal_head.logits(STREAM)
    mixed = np.exp(e * (logits_g - _log_sum(logits_g)) + (1 - e) * (logits_l - _log_sum(logits_l)))
    assert found == pytest.approx(mixed / mixed.sum(axis=1, keepdims=True))


def _log_sum(logits: np.ndarray) -> np.ndarray:
    total: np.ndarray = np.exp(logits).sum(axis=1, keepdims=True)
    return np.asarray(np.log(total))


def test_events_are_counted_after_the_prediction_and_by_batch() -> None:
    method = run()
    assert (method.trace.a == 1).all()
    assert (method.trace.b == 1).all()
    events = method.trace.event
    expected = memory.count(memory.Beta(), int((events == 1).sum()), int((events == -1).sum()), RELEASE)
    assert method.state["a"] == expected.a != 1
    assert method.state["b"] == expected.b


@pytest.mark.parametrize("threshold", [5.0, 50.0, 300.0])
def test_pruning_leaves_a_tenth_of_lambda(threshold: float) -> None:
    settings = BtflSettings.preset("release", prune_above=threshold)
    pruned = memory.count(memory.Beta(threshold, 2.0), 0, 0, settings)
    assert pruned.a == pytest.approx(1 + threshold / (threshold + 2) * threshold / 10)
    assert pruned.b == pytest.approx(1 + 2 / (threshold + 2) * threshold / 10)


def test_the_paper_is_the_default() -> None:
    assert BtflSettings.preset("paper") == BtflSettings()
    assert BtflSettings().prune_above == 16


def test_single_knobs_change_single_things_and_wrong_ones_are_refused() -> None:
    assert BtflSettings.preset("paper", count="after").count == "after"
    json.dumps(RELEASE.as_dict())
    with pytest.raises(UnknownNameError, match="Did you mean smoothing"):
        BtflSettings.preset("paper", smothing="add-one")
    with pytest.raises(UnknownNameError, match="paper, release"):
        BtflSettings.preset("papr")
    wrongs: tuple[dict[str, Any], ...] = (
        {"count": "during"},
        {"prune_above": 1.0},
        {"prune_above": math.nan},
        {"prune_to": 15.0},
        {"entropy_floor": 0.0},
        {"squash": -1.0},
        {"log_tau_limit": 1e4},
    )
    for wrong in wrongs:
        with pytest.raises(BtflError, match=next(iter(wrong))):
            BtflSettings(**wrong)


def test_each_ablation_removes_its_part() -> None:
    whole = Btfl(BUNDLE)
    whole.predict(STREAM)
    for switch in ("use_history", "use_characteristic", "use_entropy"):
        method = Btfl(BUNDLE, BtflSettings.preset("paper", **{switch: False}))
        method.predict(STREAM)
        assert not np.allclose(method.trace.e, whole.trace.e)
    method = Btfl(BUNDLE, BtflSettings(use_history=False, use_characteristic=False))
    method.predict(STREAM)
    assert method.trace.e == pytest.approx(0.5)
