"""Enrolment: what a device brings decides what it gets, and nothing of it needs torch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import Btfl, BtflError, ClientBundle, Coherent, LinearHead, Summary
from btfl.core.provenance import Provenance, check_fits, check_renewal
from btfl.core.softmax import log_softmax
from btfl.enrolment import LEVELS, Federation, LearnsAlong, enrol, renewed
from btfl.enrolment.head import fit_by_likelihood, fit_head
from btfl.enrolment.shares import counts_by_em

CLASSES, WIDTH = 5, 12
MEANS = 3 * np.abs(np.random.default_rng(7).normal(size=(CLASSES, WIDTH)))


def draw(shares: list[float], samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice(CLASSES, size=samples, p=shares)
    return np.maximum(MEANS[y] + rng.normal(size=(samples, WIDTH)), 0.0), y


def provenance(**changes: object) -> Provenance:
    told = {"run": "abc", "round": 3, "extractor": "e" * 64, "classes": list("vwxyz"), "recipe": "fedavg", **changes}
    return Provenance.from_dict(told)


@pytest.fixture(scope="module")
def federation() -> Federation:
    parts = [draw([0.2] * CLASSES, 200, seed) for seed in range(4)]
    total = Summary.total(Summary.of(z, y, CLASSES) for z, y in parts)
    bias = -0.5 * (MEANS**2).sum(axis=1)
    return Federation(LinearHead(MEANS, bias), total, provenance())


OWN = [0.7, 0.3, 0.0, 0.0, 0.0]


def test_every_level_gives_a_bundle_that_both_methods_can_use_and_says_what_it_is(federation: Federation) -> None:
    z, y = draw(OWN, 120, 10)
    bundles = {
        "labels": enrol(federation, z, y),
        "few labels": enrol(federation, z[:5], y[:5]),
        "unlabelled": enrol(federation, z),
        "nothing": enrol(federation),
    }
    assert bundles.keys() == LEVELS.keys()
    stream, _ = draw(OWN, 40, 11)
    for level, bundle in bundles.items():
        told = bundle.metadata["enrolment"]
        assert (told["level"], told["can"], told["cannot"]) == (level, *LEVELS[level])
        assert Provenance.of_bundle(bundle) == federation.provenance
        for method in (Btfl(bundle), Coherent(bundle)):
            assert np.allclose(method.predict(stream).sum(axis=1), 1.0)


def test_what_is_unlabelled_has_shares_near_the_true_ones_and_the_generative_head_under_them(
    federation: Federation,
) -> None:
    z, _ = draw(OWN, 400, 12)
    bundle = enrol(federation, z)
    counts = bundle.statistics["local_class_counts"]
    assert np.allclose(counts / counts.sum(), OWN, atol=0.06)
    expected = federation.scores.under(np.log(counts / counts.sum()))
    assert np.allclose(bundle.personal_head.logits(z), expected.logits(z))
    assert "train_labels" not in bundle.statistics


def test_with_nothing_btfl_gives_the_global_answer_whatever_comes(federation: Federation) -> None:
    bundle = enrol(federation)
    stream, _ = draw(OWN, 60, 13)
    answers = np.exp(log_softmax(bundle.global_head.logits(stream)))
    assert np.allclose(Btfl(bundle).predict(stream), answers)


def test_along_the_stream_the_shares_are_learned_and_a_restart_changes_nothing(federation: Federation) -> None:
    stream, labels = draw([0.9, 0.1, 0.0, 0.0, 0.0], 320, 14)
    whole, broken = LearnsAlong(federation, Coherent), LearnsAlong(federation, Coherent)
    first = np.concatenate([whole.predict(stream[start : start + 20]) for start in range(0, 320, 20)])
    second = [broken.predict(stream[start : start + 20]) for start in range(0, 140, 20)]
    again = LearnsAlong(federation, Coherent)
    again.restore(broken.state)
    second += [again.predict(stream[start : start + 20]) for start in range(140, 320, 20)]
    assert np.array_equal(first, np.concatenate(second))
    counts = whole.bundle.statistics["local_class_counts"]
    assert counts.argmax() == 0
    assert counts[0] > 0.7 * counts.sum()
    assert (first.argmax(axis=1) == labels).mean() > 0.9


def test_the_federations_totals_stay_as_they_are_and_the_bundles_are_with_the_device_in_them(
    federation: Federation,
) -> None:
    before = {name: array.copy() for name, array in federation.total.arrays.items()}
    z, y = draw(OWN, 60, 15)
    bundle = enrol(federation, z, y)
    assert all(np.array_equal(before[name], array) for name, array in federation.total.arrays.items())
    added = bundle.statistics["global_class_counts"] - before["class_counts"]
    assert added.tolist() == np.bincount(y, minlength=CLASSES).tolist()
    assert bundle.global_likelihood.clients == federation.total.clients + 1


@settings(max_examples=25, deadline=None)
@given(samples=st.integers(2, 30), strength=st.sampled_from([0.1, 1.0, 10.0]), seed=st.integers(0, 5))
def test_the_fitted_head_is_where_the_penalised_loss_is_least(samples: int, strength: float, seed: int) -> None:
    z, y = draw([0.2] * CLASSES, samples, seed)
    centre, scale = LinearHead(MEANS / 10, np.zeros(CLASSES)), 4.0
    found = fit_head(z, y, centre, strength, scale)
    assert found.bias is not None

    def loss(weight: np.ndarray, bias: np.ndarray) -> float:
        log_p = log_softmax(z @ weight.T + bias)
        held = scale**2 * ((weight - centre.weight) ** 2).sum() + (bias**2).sum()
        return float(-log_p[np.arange(samples), y].sum() + strength / 2 * held)

    rng, least = np.random.default_rng(seed), loss(found.weight, found.bias)
    for size in (1e-3, 1e-2):
        moved = size * rng.normal(size=found.weight.shape), size * rng.normal(size=CLASSES)
        assert loss(found.weight + moved[0], found.bias + moved[1]) >= least - 1e-5 * max(abs(least), 1.0)


def test_one_label_leaves_the_head_at_its_centre_and_many_move_it(federation: Federation) -> None:
    z, y = draw([0.2] * CLASSES, 200, 3)
    centre = LinearHead(np.zeros((CLASSES, WIDTH)), np.zeros(CLASSES))
    one, strength = fit_by_likelihood(z[:1], y[:1], centre, 4.0)
    assert np.isinf(strength)
    assert not one.weight.any()
    many, strength = fit_by_likelihood(z, y, centre, 4.0)
    assert np.isfinite(strength)
    assert (many.logits(z).argmax(axis=1) == y).mean() > 0.9
    assert enrol(federation, z[:1], y[:1]).metadata["enrolment"]["level"] == "few labels"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 50))
def test_expected_counts_add_up_to_the_samples(samples: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(scale=5, size=(samples, CLASSES))
    counts = counts_by_em(logits, np.full(CLASSES, 1 / CLASSES))
    assert (counts >= 0).all()
    assert np.isclose(counts.sum(), samples)


@pytest.mark.parametrize(
    ("features", "labels", "said"),
    [
        (np.ones((3, WIDTH + 1)), [0, 1, 2], "come from another extractor"),
        (np.ones((3, WIDTH)), [0, 1, CLASSES], "there are 5 classes"),
        (np.ones((3, WIDTH)), [0, 1], "labels must be 3 whole numbers"),
        (np.full((3, WIDTH), np.nan), [0, 1, 2], "NaN or infinite"),
        (np.ones((0, WIDTH)), None, "no sample"),
        (None, [0], "no features"),
    ],
)
def test_bad_input_is_one_sentence(federation: Federation, features: object, labels: object, said: str) -> None:
    with pytest.raises(BtflError, match=said) as caught:
        enrol(federation, features, labels)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_totals_of_another_size_than_the_head_are_refused(federation: Federation) -> None:
    with pytest.raises(BtflError, match="different federations"):
        Federation(LinearHead(np.ones((CLASSES, WIDTH + 1))), federation.total)


def later(bundle: ClientBundle, **changes: object) -> ClientBundle:
    told = {**bundle.metadata["provenance"], "round": 9, "extractor": "f" * 64, **changes}
    return ClientBundle(
        bundle.global_head, bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood,
        bundle.local_entropy, bundle.global_entropy, bundle.statistics, {**bundle.metadata, "provenance": told},
    )  # fmt: skip


@pytest.mark.parametrize("method", [Btfl, Coherent])
def test_a_renewed_device_goes_on_with_its_memory_and_settings(federation: Federation, method: type) -> None:
    z, y = draw(OWN, 120, 16)
    bundle, (stream, _) = enrol(federation, z, y), draw([0, 0, 0.4, 0.3, 0.3], 50, 17)
    device = method(bundle)
    device.predict(stream)
    fresh = renewed(device, later(bundle))
    assert fresh.state == device.state
    assert fresh.settings == device.settings
    assert np.array_equal(fresh.predict(stream), device.predict(stream))  # the same heads: the same answers


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": "other"}, "of another training"),
        ({"classes": list("vwxy?")}, "knows other classes"),
        ({"round": 1}, "is the older one"),
    ],
)
def test_a_bundle_that_is_no_renewal_is_refused(federation: Federation, changes: dict[str, object], said: str) -> None:
    bundle = enrol(federation)
    with pytest.raises(BtflError, match=said):
        renewed(Coherent(bundle), later(bundle, **changes))


def test_an_extractor_of_another_round_is_refused_and_an_older_files_silence_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check_fits(provenance(), provenance(method="btfl"))
    with pytest.raises(BtflError, match=r"run abc, round 3, the extractor of run abc, round 4.*Export both together"):
        check_fits(provenance(), provenance(round=4, extractor="f" * 64))
    assert not caplog.records
    check_fits(None, provenance())
    check_renewal(provenance(), None)
    assert len(caplog.records) == 2


def test_provenance_survives_a_file_and_damage_to_it_is_a_sentence() -> None:
    told = provenance(settings={"rounds": 3}, btfl="0.2")
    assert Provenance.from_text(told.to_text()) == told
    for text in ("{", "[]", "null", '{"run": 3}', told.to_text().replace('"round": 3', '"round": "3"')):
        with pytest.raises(BtflError, match="where it comes from"):
            Provenance.from_text(text)


def test_enrolment_imports_no_torch() -> None:
    code = "import sys, btfl.enrolment; sys.exit(any(name in sys.modules for name in ('torch', 'pandas', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
