"""Features of any sign (GELU, transformers, embeddings): what BTFL's quantiser reads of them, and that all fits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import Btfl, ClientBundle, Coherent, DiscretisedLikelihood, Summary
from btfl.core.likelihood import THRESHOLD

CLASSES, DIMENSIONS = 3, 6


def draw(seed: int, samples: int, classes: int = CLASSES) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % classes
    return rng.normal(size=(samples, DIMENSIONS)) - 2 * np.eye(CLASSES, DIMENSIONS)[labels], labels


def make_bundle(seed: int = 0, spread: float = 1.0) -> tuple[ClientBundle, np.ndarray]:
    """Return a bundle of signed features, and a stream; ``spread`` stretches what is below zero."""
    (own, labels), (others, other_labels) = draw(seed, 30, classes=2), draw(seed + 1, 60)
    own, others = (np.where(z < 0, z * spread, z) for z in (own, others))
    mine = Summary.of(own, labels, CLASSES)
    everyone = mine + Summary.of(others, other_labels, CLASSES)
    head = np.random.default_rng(seed).normal(size=(CLASSES, DIMENSIONS))
    bundle = ClientBundle.of(head, 2 * head[::-1], mine, everyone, features=own, labels=labels)
    return bundle, np.concatenate([own, others])


@given(st.integers(0, 10**6), st.sampled_from(["add-one", "squeeze"]))
def test_the_likelihood_adds_up_to_one_over_all_patterns_of_bits(seed: int, smoothing: Any) -> None:
    likelihood = DiscretisedLikelihood.fit(draw(seed, 20)[0])
    patterns = np.array(list(itertools.product([-3.0, 2.0], repeat=DIMENSIONS)))
    assert np.exp(likelihood.log_likelihood(patterns, smoothing)).sum() == pytest.approx(1.0, abs=1e-12)


@given(st.floats(-1e30, THRESHOLD), st.floats(0.5494, 1e30))
def test_at_or_below_the_threshold_is_off_and_above_it_is_on(below: float, above: float) -> None:
    likelihood = DiscretisedLikelihood.fit([[below], [below], [below], [above]])
    assert likelihood.frequencies.tolist() == [0.75]
    off, on = np.exp(likelihood.log_likelihood([[below], [above]]))
    assert (off, on) == (pytest.approx(4 / 6), pytest.approx(2 / 6))


def test_how_far_below_zero_a_feature_is_does_not_change_btfls_evidence_but_coherents() -> None:
    found = {}
    for method in (Btfl, Coherent):
        for spread in (1.0, 3.0):
            bundle, stream = make_bundle(spread=spread)
            one = method(bundle)
            one.predict(stream)
            found[method, spread] = one.trace["log_tau"]
    np.testing.assert_array_equal(found[Btfl, 1.0], found[Btfl, 3.0])
    assert not np.allclose(found[Coherent, 1.0], found[Coherent, 3.0])


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_both_methods_give_probabilities_and_the_same_in_any_batches(seed: int) -> None:
    bundle, stream = make_bundle(seed)
    for method in (Btfl, Coherent):
        whole = method(bundle).predict(stream)
        assert np.isfinite(whole).all()
        np.testing.assert_allclose(whole.sum(axis=1), 1.0, atol=1e-12)
        one = method(bundle)
        np.testing.assert_array_equal(np.concatenate([one.predict(row[None]) for row in stream]), whole)


def test_a_bundle_of_signed_features_comes_back_from_disk(tmp_path: Any) -> None:
    bundle, stream = make_bundle()
    bundle.save(tmp_path)
    for method in (Btfl, Coherent):
        np.testing.assert_array_equal(
            method(ClientBundle.load(tmp_path)).predict(stream), method(bundle).predict(stream)
        )
