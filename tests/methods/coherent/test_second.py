"""The second version: class means of a client's own, settings by the data; version 1 where neither says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import Calibration, ClientBundle, Coherent, Summary
from btfl.methods.base import BundleOnly
from btfl.methods.coherent.settings import FIRST_VERSION
from btfl.methods.registry import find_method

CLASSES, DIMENSIONS, SAMPLES = 3, 5, 8000
EXACT: dict[str, Any] = {
    "temperature": 1.0, "shrinkage": 0.0, "openness": 0.0, "local_temperature": 1.0, "generative_share": 1.0,
    "log_tau_limit": 600.0,
}  # fmt: skip


class People:
    """A client with class means and label shares of its own, and everyone else, who share theirs."""

    def __init__(self, seed: int = 0, offset: float = 0.8) -> None:
        self.rng = np.random.default_rng(seed)
        self.means = self.rng.normal(0, 1.5, (CLASSES, DIMENSIONS))
        self.own_means = self.means + offset * self.rng.normal(size=self.means.shape)
        self.shares = {"own": self.rng.dirichlet(np.full(CLASSES, 5.0)), "everyone": np.full(CLASSES, 1 / CLASSES)}

    def draw(self, whose: str, samples: int) -> tuple[np.ndarray, np.ndarray]:
        labels = self.rng.choice(CLASSES, size=samples, p=self.shares[whose])
        means = self.own_means if whose == "own" else self.means
        return means[labels] + self.rng.normal(size=(samples, DIMENSIONS)), labels

    def log_density(self, z: np.ndarray, whose: str) -> np.ndarray:
        means = self.own_means if whose == "own" else self.means
        distances = ((z[:, None] - means) ** 2).sum(axis=2)
        return np.asarray(np.log((self.shares[whose] * np.exp(-distances / 2)).sum(axis=1)))

    def bundle(self) -> ClientBundle:
        own = Summary.of(*self.draw("own", SAMPLES), classes=CLASSES)
        everyone = Summary.of(*self.draw("everyone", 10 * SAMPLES), classes=CLASSES)
        head = self.rng.normal(size=(CLASSES, DIMENSIONS))
        return ClientBundle.of(head, -head, own, everyone)


@settings(max_examples=25)
@given(st.integers(0, 2**16))
def test_the_evidence_is_the_true_likelihood_ratio(seed: int) -> None:
    people = People(seed)
    method = Coherent(people.bundle(), **EXACT, inverse_kappa=1e9)
    z = np.concatenate([people.draw("own", 50)[0], people.draw("everyone", 50)[0]])
    method.predict(z)
    true = people.log_density(z, "own") - people.log_density(z, "everyone")
    found = method.trace["log_tau"]
    assert np.abs(found - true).mean() < 0.1  # what is left is the error of means from so many samples
    assert np.corrcoef(found, true)[0, 1] > 0.995


def test_e_is_calibrated_on_streams_of_both() -> None:
    people = People(3, offset=0.5)
    method = Coherent(people.bundle(), **EXACT, inverse_kappa=1e9)
    external, e = [], []
    for stream in range(90):
        share = (stream % 3) / 2  # all internal, half, all external
        outside = people.rng.random(100) < share
        own, others = people.draw("own", 100)[0], people.draw("everyone", 100)[0]
        method.reset()
        method.predict(np.where(outside[:, None], others, own))
        external.append(outside)
        e.append(method.trace["e"])
    said, true = np.concatenate(e), np.concatenate(external)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        here = (said >= low) & (said < low + 0.2 + 1e-9)
        assert true[here].mean() == pytest.approx(said[here].mean(), abs=0.08)


def test_means_of_its_own_are_what_tells_a_client_whose_labels_are_everyones() -> None:
    people = People(5)
    people.shares["own"] = people.shares["everyone"]
    bundle = people.bundle()
    own, others = people.draw("own", 200)[0], people.draw("everyone", 200)[0]
    found = {}
    for inverse_kappa in (0.0, 0.5):
        method = Coherent(bundle, **EXACT, inverse_kappa=inverse_kappa)
        for name, stream in (("own", own), ("others", others)):
            method.reset()
            method.predict(stream)
            found[name, inverse_kappa] = method.trace["e"][30:].mean()
    assert found["own", 0.5] < 0.1
    assert found["others", 0.5] > 0.9
    assert abs(found["own", 0.0] - found["others", 0.0]) < 0.2


def test_the_limit_of_infinite_kappa_is_version_1_to_the_bit() -> None:
    people = People(1)
    bundle, stream = people.bundle(), people.draw("everyone", 300)[0]
    first = find_method("coherent-1").build(BundleOnly(bundle))
    by_hand = Coherent(bundle, **FIRST_VERSION._asdict())
    uncalibrated = Coherent(bundle)  # a bundle without a calibration has version 1's settings
    answers = [method.predict(stream) for method in (first, by_hand, uncalibrated)]
    assert answers[0].tobytes() == answers[1].tobytes() == answers[2].tobytes()
    near = Coherent(bundle, **{**FIRST_VERSION._asdict(), "inverse_kappa": 1e-300})
    np.testing.assert_allclose(near.predict(stream), answers[0], atol=1e-9)


def test_a_sample_alone_is_what_it_is_in_a_batch_however_large() -> None:
    people = People(2)
    stream = people.draw("own", 60)[0]
    stream[::7] *= 1e4  # logits that are too large for a plain exponential
    method = Coherent(people.bundle(), inverse_kappa=0.3)
    together = method.predict(stream)
    np.testing.assert_allclose(together.sum(axis=1), 1.0)
    method.reset()
    alone = np.concatenate([method.predict(row[None]) for row in stream])
    assert alone.tobytes() == together.tobytes()


def test_the_data_set_what_is_not_given() -> None:
    people = People(4)
    summaries = [Summary.of(*people.draw(whose, 400), classes=CLASSES) for whose in ("own", "everyone")]
    total, head = Summary.total(summaries), np.eye(CLASSES, DIMENSIONS)
    fits = [
        Calibration.of(head, head, summary, total, *people.draw(whose, 300))
        for summary, whose in zip(summaries, ("own", "everyone"), strict=True)
    ]
    bundle = ClientBundle.of(head, head, summaries[0], total.calibrated(fits[0] + fits[1]))
    method = Coherent(bundle)
    assert method.chosen.inverse_kappa > 0.05
    assert method.chosen != FIRST_VERSION
    assert Coherent(bundle, temperature=7.0).chosen == method.chosen._replace(temperature=7.0)
    assert Coherent(bundle, preset="first").chosen == FIRST_VERSION


def test_classes_a_client_lacks_have_everyones_means() -> None:
    people = People(6)
    z, y = people.draw("own", 300)
    own = Summary.of(z[y == 0], y[y == 0], classes=CLASSES)
    everyone = own + Summary.of(*people.draw("everyone", 900), classes=CLASSES)
    head = np.eye(CLASSES, DIMENSIONS)
    method = Coherent(ClientBundle.of(head, head, own, everyone), inverse_kappa=0.5)
    assert np.isfinite(method.predict(people.draw("everyone", 50)[0])).all()
