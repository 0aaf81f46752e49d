"""A summary is sums: it adds up, travels as arrays, is checked, can be protected, and makes a bundle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from btfl import ClientBundle, Coherent, DiscretisedLikelihood, LinearHead, Summary
from btfl.core.heads import mean_entropy
from btfl.core.summary import DISTORTED, STATISTICS
from btfl.errors import InputError

CLASSES, DIMENSIONS = 3, 5
PER_CLASS = ("class_counts", "class_feature_sums", "feature_scatter")


def draw(seed: int, samples: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.normal(0.4, 1.0, (samples, DIMENSIONS)), 0.0).astype(np.float32)
    return features, rng.integers(CLASSES, size=samples)


def make(seed: int, samples: int = 30, copies: bool = False) -> Summary:
    features, labels = draw(seed, samples)
    return Summary.of(features, labels, CLASSES, distorted=features + 1 if copies else None)


def same(one: Summary, other: Summary) -> bool:
    return all(array.tobytes() == other.arrays[name].tobytes() for name, array in one.arrays.items())


clients = st.lists(st.tuples(st.integers(0, 99), st.integers(1, 40), st.booleans()), min_size=1, max_size=6)


@given(clients)
def test_the_total_is_the_sum_in_order(drawn: list[tuple[int, int, bool]]) -> None:
    summaries = [make(*one) for one in drawn]
    added = summaries[0]
    for summary in summaries[1:]:
        added = added + summary
    total = Summary.total(iter(summaries))
    assert same(total, added)  # to the bit: both add in the clients' order
    assert (total.clients, total.samples) == (len(drawn), sum(samples for _, samples, _ in drawn))
    assert total.has_copies == any(copies for *_, copies in drawn)


@given(clients, st.randoms(use_true_random=False))
def test_another_order_differs_by_rounding_only(drawn: list[tuple[int, int, bool]], random: Any) -> None:
    summaries = [make(*one) for one in drawn]
    total = Summary.total(summaries)
    random.shuffle(summaries)
    for name, array in Summary.total(summaries).arrays.items():
        np.testing.assert_allclose(array, total.arrays[name], rtol=1e-12)


def test_the_total_leaves_the_summaries_alone() -> None:
    one, before = make(1), make(1)
    Summary.total([one, make(2)])
    assert same(one, before)


def test_it_is_what_the_samples_add_up_to() -> None:
    (features, labels), (more, more_labels) = draw(3, 20), draw(4, 25)
    total = Summary.of(features, labels, CLASSES) + Summary.of(more, more_labels, CLASSES, distorted=more * 2)
    z, y = np.concatenate([features, more]).astype(np.float64), np.concatenate([labels, more_labels])
    sums = total.class_sums()
    np.testing.assert_array_equal(sums.counts, np.bincount(y, minlength=CLASSES))
    np.testing.assert_allclose(sums.sums, [z[y == k].sum(axis=0) for k in range(CLASSES)])
    np.testing.assert_allclose(sums.scatter, z.T @ z)
    copies = total.class_sums(DISTORTED)
    np.testing.assert_array_equal(copies.counts, np.bincount(more_labels, minlength=CLASSES))
    np.testing.assert_allclose(copies.scatter, 4 * more.astype(np.float64).T @ more.astype(np.float64))
    average = DiscretisedLikelihood.average([DiscretisedLikelihood.fit(features), DiscretisedLikelihood.fit(more)])
    np.testing.assert_allclose(total.likelihood.frequencies, average.frequencies)
    assert (total.likelihood.count, total.likelihood.clients) == (45, 2)


@given(st.integers(0, 99), st.integers(1, 40), st.booleans())
def test_it_comes_back_from_arrays_as_it_was_and_is_sound(seed: int, samples: int, copies: bool) -> None:
    summary = make(seed, samples, copies)
    again = Summary.from_arrays(summary.to_arrays())
    assert same(again, summary)
    assert list(again.arrays) == [statistic.name for statistic in STATISTICS]
    again.check(CLASSES, DIMENSIONS)
    for statistic in STATISTICS:
        assert again.arrays[statistic.name].shape == statistic.shape(CLASSES, DIMENSIONS)


def test_arrays_that_are_missing_or_unknown_are_refused() -> None:
    arrays = make(0).to_arrays()
    with pytest.raises(InputError, match="feature_scatter is missing"):
        Summary.from_arrays({name: array for name, array in arrays.items() if name != "feature_scatter"})
    with pytest.raises(InputError, match="secret is not asked for"):
        Summary.from_arrays({**arrays, "secret": np.ones(1)})


def plus(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: array + value


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("class_counts", lambda array: array[:-1], r"class_counts has the shape \(2,\), not \(3,\)"),
        ("feature_scatter", lambda array: array[0], "feature_scatter has the shape"),
        ("class_feature_sums", plus(np.nan), "NaN or infinite"),
        ("feature_scatter", plus(np.inf), "NaN or infinite"),
        ("class_feature_sums", plus(-1e6), "larger than feature_scatter and the counts allow"),
        ("zero_frequencies", plus(1.5), "zero_frequencies are shares"),
        ("clients", plus(1), "speaks for itself alone, not for 2 clients"),
        ("samples", plus(1), "add up to the 31 samples"),
        ("class_counts", plus(0.5), "whole numbers"),
        ("distorted_class_counts", plus(1), "those of the samples, or zero"),
        ("distorted_class_feature_sums", plus(1), "distorted_class_feature_sums and .* must be zero"),
        ("distorted_feature_scatter", plus(1), "must be zero where there is no sample"),
    ],
)
def test_what_no_clients_data_could_give_is_refused(
    name: str, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    arrays = make(0).to_arrays()
    broken = Summary.from_arrays({**arrays, name: change(arrays[name])})
    with pytest.raises(InputError, match=message):
        broken.check(CLASSES, DIMENSIONS)


def test_where_the_extractor_ends_in_a_relu_no_sum_is_negative() -> None:
    features, labels = draw(0)
    signed = Summary.of(features - 0.5, labels, CLASSES)
    signed.check(CLASSES, DIMENSIONS)
    with pytest.raises(InputError, match="class_feature_sums must not be negative"):
        signed.check(CLASSES, DIMENSIONS, nonnegative=True)
    make(0).check(CLASSES, DIMENSIONS, nonnegative=True)


def test_sums_with_noise_are_asked_for_shapes_and_finite_values_only() -> None:
    arrays = make(0).to_arrays()
    noisy = Summary.from_arrays({name: array - 0.25 for name, array in arrays.items()})
    noisy.check(CLASSES, DIMENSIONS, exact=False)
    with pytest.raises(InputError, match="must not be negative"):
        noisy.check(CLASSES, DIMENSIONS)
    with pytest.raises(InputError, match="shape"):
        noisy.check(CLASSES + 1, DIMENSIONS, exact=False)


@pytest.mark.parametrize(
    ("features", "labels", "distorted", "message"),
    [
        (np.ones((2, 5)), [0, 3], None, "labels run from 0 to 3, but there are 3 classes"),
        (np.ones((2, 5)), [0], None, "labels must be 2 whole numbers"),
        (np.ones((2, 5)), [0.0, 1.0], None, "labels must be 2 whole numbers"),
        (np.full((2, 5), np.nan), [0, 1], None, "NaN"),
        (np.ones((0, 5)), [], None, "no sample"),
        (np.ones((2, 5)), [0, 1], np.ones((1, 5)), "distorted features must be 2 rows"),
        (np.ones((2, 5)), [0, 1], np.ones((2, 4)), "5 are expected"),
    ],
)
def test_wrong_data_is_refused(features: np.ndarray, labels: list[Any], distorted: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Summary.of(features, labels, CLASSES, distorted=distorted)


def test_summaries_of_different_sizes_are_not_added_and_none_is_no_total() -> None:
    with pytest.raises(InputError, match="different sizes"):
        make(0) + Summary.of(*draw(0), CLASSES + 1)
    with pytest.raises(InputError, match="no client sent"):
        Summary.total([])


@dataclass
class ClipAndNoise:
    """Clips features to a length, and adds noise to the sums."""

    length: float
    noise: float

    def features(self, features: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features * np.minimum(1.0, self.length / np.maximum(norms, 1e-12)))

    def summary(self, summary: Summary) -> Summary:
        return Summary.from_arrays({name: array + self.noise for name, array in summary.to_arrays().items()})


def test_protection_clips_before_and_adds_noise_after_the_sums() -> None:
    features, labels = draw(7)
    copies = features * 3
    protection = ClipAndNoise(0.5, 0.125)
    found = Summary.of(features, labels, CLASSES, distorted=copies, protection=protection)
    clipped = [protection.features(array.astype(np.float64)) for array in (features, copies)]
    plain = Summary.of(clipped[0], labels, CLASSES, distorted=clipped[1])
    assert all((found.arrays[name] == array + 0.125).all() for name, array in plain.arrays.items())
    for kind in ("", DISTORTED):
        assert np.trace(plain.class_sums(kind).scatter) <= 30 * 0.25 + 1e-9
    found.check(CLASSES, DIMENSIONS, exact=False)


def test_it_says_what_it_is_and_never_shows_arrays() -> None:
    assert repr(make(0)) == "Summary(1 client, 30 samples, 3 classes, 5 dimensions, no distorted copies)"
    both = make(0, 600, copies=True) + make(1, 600)
    assert repr(both) == "Summary(2 clients, 1,200 samples, 3 classes, 5 dimensions, with distorted copies)"


def test_a_bundle_of_summaries_is_the_one_made_by_hand() -> None:
    features, labels = draw(1)
    own = Summary.of(features, labels, CLASSES, distorted=features + 1)
    everyone = own + make(2, copies=True)
    rng = np.random.default_rng(0)
    global_head, personal_head = rng.normal(size=(CLASSES, DIMENSIONS)), rng.normal(size=(CLASSES, DIMENSIONS))
    found = ClientBundle.of(
        global_head,
        personal_head,
        own,
        everyone,
        features=features,
        labels=labels,
        validation=(features[:4], labels[:4]),
        statistics={"mine": np.arange(3)},
        metadata={"client": 1},
    )
    by_hand = ClientBundle(
        global_head,
        personal_head,
        DiscretisedLikelihood.fit(features),
        DiscretisedLikelihood.average([DiscretisedLikelihood.fit(features), DiscretisedLikelihood.fit(draw(2)[0])]),
        local_entropy=mean_entropy(LinearHead(personal_head), features),
        global_entropy=mean_entropy(LinearHead(global_head), features),
        statistics={
            **{f"global_{name}": everyone.arrays[name] for name in (*PER_CLASS, *(DISTORTED + n for n in PER_CLASS))},
            "local_class_counts": np.bincount(labels, minlength=CLASSES).astype(np.float64),
            "local_class_feature_sums": own.class_sums().sums,
            "train_features": features,
            "train_labels": labels,
            "validation_features": features[:4],
            "validation_labels": labels[:4],
            "mine": np.arange(3),
        },
        metadata={"client": 1},
    )
    assert found.mean_entropies == by_hand.mean_entropies
    assert found.metadata == by_hand.metadata
    assert set(found.statistics) == set(by_hand.statistics)
    for name, array in by_hand.statistics.items():
        assert found.statistics[name].dtype == array.dtype
        assert found.statistics[name].tobytes() == array.tobytes(), name
    for name in ("local_likelihood", "global_likelihood"):
        one, other = getattr(found, name), getattr(by_hand, name)
        assert (one.count, one.clients) == (other.count, other.clients)
        np.testing.assert_array_equal(one.frequencies, other.frequencies)


def test_without_features_a_bundle_is_enough_for_coherent_and_lacks_mean_entropies() -> None:
    bundle = ClientBundle.of(np.eye(CLASSES, DIMENSIONS), np.eye(CLASSES, DIMENSIONS), make(0), make(0) + make(1))
    assert "train_features" not in bundle.statistics
    assert Coherent(bundle).predict(draw(5)[0]).shape == (30, CLASSES)
    with pytest.raises(InputError, match="features="):
        _ = bundle.mean_entropies


def as_linear(weight: np.ndarray, bias: np.ndarray) -> torch.nn.Linear:
    layer = torch.nn.Linear(DIMENSIONS, CLASSES)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer


@pytest.mark.parametrize(
    "given_as",
    [
        as_linear,
        lambda weight, bias: (weight, bias),
        lambda weight, bias: (weight.tolist(), bias.tolist()),
        lambda weight, bias: (torch.from_numpy(weight).requires_grad_(), torch.from_numpy(bias)),
        LinearHead,
    ],
)
def test_a_head_may_be_a_layer_a_pair_or_tensors(given_as: Callable[[np.ndarray, np.ndarray], Any]) -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(CLASSES, DIMENSIONS)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    bundle = ClientBundle.of(given_as(weight, bias), weight, make(0), make(0) + make(1))
    np.testing.assert_array_equal(bundle.global_head.weight, weight)
    np.testing.assert_array_equal(bundle.global_head.bias, bias)
    assert bundle.personal_head.bias is None
    assert bundle.global_head.weight.dtype == np.float64


def test_sum_adds_summaries_and_what_is_none_is_refused() -> None:
    labels = np.arange(12) % 3
    one, other = (Summary.of(scale * np.eye(3, 5)[labels], labels, classes=3) for scale in (1, 2))
    for name, array in sum([one, other, one]).arrays.items():  # type: ignore[union-attr]
        np.testing.assert_array_equal(array, (one + other + one).arrays[name])
    with pytest.raises(TypeError):
        one + 3  # type: ignore[operator]
    with pytest.raises(InputError, match=r"classes must be a whole number, how many there are, not 3\.0"):
        Summary.of(np.eye(3, 5)[labels], labels, classes=3.0)  # type: ignore[arg-type]
