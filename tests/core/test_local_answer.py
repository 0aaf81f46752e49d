"""The local answer with settings or Gaussians of its own: limits, what is chosen, and what older files make of it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import Calibration, ClientBundle, Coherent, LinearHead, Summary
from btfl.core.bundle import OWN_SCATTER, OWN_SUMS
from btfl.core.calibration import SHAPES
from btfl.core.generative import DISTORTED_WEIGHT, OPENNESS, class_scores, everyones_sums, shares, shrunk
from btfl.core.local_answer import PRIOR_SAMPLES, Everyone, LocalAnswer, own_offsets, own_scores
from btfl.core.softmax import log_softmax
from btfl.enrolment import HANDFUL, Federation, enrol
from btfl.errors import InputError

CLASSES, DIMENSIONS = 3, 6
Part = tuple[np.ndarray, np.ndarray]


def clients_of_their_own(stretched: float, seed: int = 0, clients: int = 12, samples: int = 150) -> list[list[Part]]:
    """Draw clients whose class means differ a little, each with a few directions of its own in which it varies more."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 1.0, (CLASSES, DIMENSIONS))
    drawn = []
    for _ in range(clients):
        own = means + 0.5 * rng.normal(size=means.shape)
        turned, _ = np.linalg.qr(rng.normal(size=(DIMENSIONS, DIMENSIONS)))
        root = turned * np.where(np.arange(DIMENSIONS) < 2, stretched, 1.0)
        parts = []
        for _ in range(2):
            labels = rng.integers(CLASSES, size=samples)
            parts.append((own[labels] + rng.normal(size=(samples, DIMENSIONS)) @ root.T, labels))
        drawn.append(parts)
    return drawn


def calibrated(drawn: list[list[Part]]) -> tuple[list[Summary], Summary]:
    summaries = [Summary.of(*train, classes=CLASSES) for train, _ in drawn]
    everyone, head = Summary.total(summaries), np.zeros((CLASSES, DIMENSIONS))
    fits = (Calibration.of(head, head, own, everyone, *part[1]) for own, part in zip(summaries, drawn, strict=True))
    return summaries, everyone.calibrated(Calibration.total(fits))


def bundles(drawn: list[list[Part]]) -> list[ClientBundle]:
    head = np.zeros((CLASSES, DIMENSIONS))
    summaries, everyone = calibrated(drawn)
    return [ClientBundle.of(head, head, own, everyone) for own in summaries]


def answer(**changes: float) -> LocalAnswer:
    return LocalAnswer(0.01, math.inf, 0.3, 1.5, 1.0)._replace(**changes)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 3.0]))
def test_with_everyones_covariance_the_scores_are_those_of_own_means(seed: int, inverse_kappa: float) -> None:
    summaries, everyone = calibrated(clients_of_their_own(1.0, seed, clients=3, samples=20))
    own, plain = summaries[0].class_sums(), everyone.class_sums()
    found = own_scores(own, Everyone.of(plain, plain), answer(inverse_kappa=inverse_kappa))
    expected = class_scores(plain, 0.01, own_offsets(own.counts, own.sums, plain, inverse_kappa))
    np.testing.assert_allclose(found.weight, expected.weight, rtol=1e-9, atol=1e-12)
    zeros = np.zeros((1, DIMENSIONS))
    np.testing.assert_allclose(found.logits(zeros), expected.logits(zeros), rtol=1e-9, atol=1e-12)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([6.0, 100.0]))
def test_the_covariance_is_the_own_one_and_everyones_by_their_samples(seed: int, prior: float) -> None:
    drawn = clients_of_their_own(3.0, seed, clients=3, samples=40)
    summaries, everyone = calibrated(drawn)
    (features, labels), own, plain = drawn[0][0], summaries[0].class_sums(), everyone.class_sums()
    total = Everyone.of(plain, plain)
    found = own_scores(own, total, answer(prior_samples=prior))
    residuals = features - np.stack([features[labels == k].mean(axis=0) for k in range(CLASSES)])[labels]
    freedom = len(labels) - CLASSES
    covariance = (residuals.T @ residuals + prior * shrunk(total.within, 0.01, total.mean_square)) / (freedom + prior)
    means = total.means + own_offsets(own.counts, own.sums, plain, 0.3)
    np.testing.assert_allclose(found.weight @ covariance, means, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("stretched", "least", "most"), [(6.0, 0.1, 1.0), (1.0, 0.0, 0.02)])
def test_a_covariance_of_ones_own_is_worth_it_where_clients_vary_in_ways_of_their_own(
    stretched: float, least: float, most: float
) -> None:
    chosen = calibrated(clients_of_their_own(stretched))[1].calibration
    assert chosen is not None
    found, likelihood = chosen.choose_local(), chosen.arrays["calibration_own"]
    assert found is not None
    gained = (likelihood.max() - likelihood[:, PRIOR_SAMPLES.index(math.inf)].max()) / chosen.samples
    assert least <= gained < most  # nats a sample


def test_the_local_answer_is_better_for_it() -> None:
    drawn = clients_of_their_own(6.0)
    own: list[float] = []
    shared: list[float] = []
    for bundle, (_, (features, labels)) in zip(bundles(drawn), drawn, strict=True):
        for found, method in ((own, Coherent(bundle)), (shared, Coherent(bundle, local_heads="shared"))):
            found.append(float((method.heads[0].logits(features).argmax(axis=1) == labels).mean()))
    assert np.mean(own) > np.mean(shared) + 0.02


def test_a_device_that_is_enrolled_with_labels_has_it_too_and_one_with_few_has_not() -> None:
    drawn = clients_of_their_own(6.0, clients=16)
    everyone = calibrated(drawn[:12])[1]
    federation = Federation(LinearHead(np.zeros((CLASSES, DIMENSIONS))), everyone)
    own: list[float] = []
    shared: list[float] = []
    for (features, labels), (further, answers) in drawn[12:]:
        bundle = enrol(federation, features, labels)
        for found, method in ((own, Coherent(bundle)), (shared, Coherent(bundle, local_heads="shared"))):
            found.append(float((method.heads[0].logits(further).argmax(axis=1) == answers).mean()))
        assert OWN_SCATTER not in enrol(federation, features[: HANDFUL - 1], labels[: HANDFUL - 1]).statistics
    assert np.mean(own) > np.mean(shared) + 0.005


def test_clients_dealt_from_one_pool_have_no_answer_of_their_own() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(0, 1.0, (CLASSES, DIMENSIONS))
    drawn = []
    for _ in range(12):
        labels = rng.integers(CLASSES, size=(2, 60))
        drawn.append([(means[y] + rng.normal(size=(60, DIMENSIONS)), y) for y in labels])
    bundle = bundles(drawn)[0]
    assert OWN_SCATTER not in bundle.statistics
    assert Coherent(bundle).local_answer is None


def test_a_bundle_without_the_scatter_answers_as_before() -> None:
    bundle = bundles(clients_of_their_own(6.0))[0]
    assert OWN_SCATTER in bundle.statistics
    rest = {name: array for name, array in bundle.statistics.items() if name not in (OWN_SCATTER, "calibration_own")}
    older = ClientBundle(
        bundle.global_head, bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood, statistics=rest
    )
    features = np.random.default_rng(1).normal(size=(9, DIMENSIONS))
    expected = Coherent(bundle, local_heads="shared").predict(features)
    assert (Coherent(older).predict(features) == expected).all()


@pytest.mark.parametrize("given", ["temperature", "shrinkage", "local_temperature", "inverse_kappa"])
def test_a_setting_that_is_given_is_used(given: str) -> None:
    bundle = bundles(clients_of_their_own(6.0))[0]
    assert Coherent(bundle).local_answer is not None
    changes: dict[str, Any] = {given: 0.5}
    assert Coherent(bundle, **changes).local_answer is None
    assert Coherent(bundle, preset="first").local_answer is None


def test_calibrations_of_an_older_btfl_choose_as_they_did() -> None:
    chosen = calibrated(clients_of_their_own(6.0))[1].calibration
    assert chosen is not None
    older = Calibration.from_arrays({name: chosen.arrays[name] for name in SHAPES if name != "calibration_own"})
    assert older.choose() == chosen.choose()
    assert older.choose_local() is None
    assert (older + chosen).choose_local() == chosen.choose_local()


Likelihoods = dict[tuple[int, ...], float]


def sums_over(local: Likelihoods, own: Likelihoods | None = None, samples: int = 1_000) -> Calibration:
    """Sums with -1 a sample but where given; the global answer has shrinkage 0.05 and temperature 2."""
    arrays = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    arrays["calibration_samples"][:] = samples
    given: dict[str, Likelihoods] = {"global": {(2, 3, 1): -0.8}, "local": local, "own": own or {}}
    for name, likelihoods in given.items():
        grid = arrays[f"calibration_{name}"]
        grid[:] = -samples
        for place, value in likelihoods.items():
            grid[place] = value * samples
    return Calibration(arrays)


def differing(calibration: Calibration) -> Calibration:
    """The same with clients that differ in what a class looks like: 1/kappa = 0.5."""
    arrays = dict(calibration.arrays)
    arrays["calibration_moments"] = np.tile([500.0, 1_000.0, 0.0], (len(arrays["calibration_moments"]), 1))
    arrays["calibration_weights"] = np.array([1_000.0, 1_000.0])
    return Calibration(arrays)


def test_the_local_answer_has_settings_of_its_own_where_they_are_clearly_more_likely() -> None:
    together, apart = (2, 3, 4), (0, 6, 5)
    clear = sums_over({together: -0.6, apart: -0.58})
    assert clear.choose_local() == LocalAnswer(0.01, math.inf, 0.0, 4.0, 3.0)
    close = sums_over({together: -0.6, apart: -0.59})
    assert close.choose_local() is None


def test_an_answer_of_ones_own_must_be_the_most_likely() -> None:
    own = (1, 3, 2, 1, 2)
    cases: list[tuple[Likelihoods, LocalAnswer | None]] = [
        ({(2, 3, 4): -0.6}, LocalAnswer.at(own)),
        ({(2, 3, 4): -0.4}, None),
        ({(2, 3, 4): -0.6, (0, 6, 5): -0.4}, LocalAnswer(0.01, math.inf, 0.5, 4.0, 3.0)),
    ]
    for local, expected in cases:
        found = differing(sums_over(local, {own: -0.5}))
        assert found.choose_local() == expected
    shared = sums_over({(2, 3, 4): -0.6}, {own: -0.5})
    assert shared.choose_local() is None


@pytest.mark.parametrize("lacks", [(OWN_SCATTER,), (OWN_SCATTER, OWN_SUMS)])
def test_settings_of_its_own_make_the_local_answer_and_nothing_else(lacks: tuple[str, ...]) -> None:
    bundle = bundles(clients_of_their_own(1.0))[0]
    found = sums_over({(2, 3, 4): -0.6, (0, 6, 5): -0.4})
    rest = {name: array for name, array in bundle.statistics.items() if name not in lacks}
    apart = dataclasses.replace(bundle, statistics={**rest, **found.to_arrays()})
    method, shared = Coherent(apart), Coherent(apart, local_heads="shared")
    scores = class_scores(everyones_sums(apart, DISTORTED_WEIGHT), 0.01)
    everyone, own = (apart.statistics[f"{whose}_class_counts"] for whose in ("global", "local"))
    log_own = shares(own, shares(everyone), OPENNESS)
    z = np.random.default_rng(2).normal(size=(5, DIMENSIONS))
    expected = log_softmax((scores.logits(z) / 4.0 + log_own) / 3.0)  # the personal head is zero
    np.testing.assert_allclose(log_softmax(method.heads[0].logits(z)), expected, rtol=1e-8, atol=1e-10)
    for one, other in zip(method.heads[1:], shared.heads[1:], strict=True):
        assert (one.logits(z) == other.logits(z)).all()


def test_own_sums_that_are_too_large_are_refused() -> None:
    summaries, everyone = calibrated(clients_of_their_own(1.0))
    own, plain = summaries[0].class_sums(), everyone.class_sums()
    with pytest.raises(InputError, match="own sums"):
        own_scores(own._replace(scatter=own.scatter * np.inf), Everyone.of(plain, plain), answer(prior_samples=25.0))


def one_class(parts: list[Part]) -> list[Part]:
    return [(features[labels == 0], labels[labels == 0]) for features, labels in parts]


def one_sample(parts: list[Part]) -> list[Part]:
    return [(features[:1], labels[:1]) for features, labels in parts]


def without_class(parts: list[Part]) -> list[Part]:
    return [(features[labels < CLASSES - 1], labels[labels < CLASSES - 1]) for features, labels in parts]


def singular(parts: list[Part]) -> list[Part]:
    return [(np.column_stack([features[:, :2], features[:, :2], 0 * features[:, :2]]), y) for features, y in parts]


def unsigned(parts: list[Part]) -> list[Part]:
    return [(np.maximum(features, 0.0), labels) for features, labels in parts]


@pytest.mark.parametrize("of_one", [None, one_class, one_sample])
@pytest.mark.parametrize("of_all", [None, without_class, singular, unsigned])
def test_poor_data_still_give_probabilities(of_one: Any, of_all: Any) -> None:
    drawn = [parts if of_all is None else of_all(parts) for parts in clients_of_their_own(6.0, samples=60)]
    usual = drawn[0][1][0]
    if of_one is not None:
        drawn[0] = of_one(drawn[0])
    method = Coherent(bundles(drawn)[0])
    assert method.local_answer is not None
    for features in (usual, 1e3 * usual, np.zeros((3, DIMENSIONS))):
        found = method.predict(features)
        assert np.isfinite(found).all()
        assert np.allclose(found.sum(axis=1), 1.0)
        assert ((method.trace.e >= 0) & (method.trace.e <= 1)).all()
    alone = Coherent(method.bundle)
    assert (np.concatenate([alone.predict(row[None]) for row in usual]) == Coherent(method.bundle).predict(usual)).all()
