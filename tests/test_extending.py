"""What people add most often takes one place each: CONTRIBUTING.md says which, and these tests do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import click
import numpy as np
import pytest
from pydantic import Field

from btfl import ClientBundle, Coherent, Method, Summary
from btfl.cli.options import experiment_options
from btfl.core import summary as summary_module
from btfl.core.heads import ScoreHead
from btfl.core.summary import ClassSums, Statistic
from btfl.engines import LocalEngine, train_federation
from btfl.errors import InputError
from btfl.experiments import experiment as experiment_module
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.knobs import Settings, knob
from btfl.methods.base import Column
from btfl.methods.card import Card
from btfl.methods.coherent.density import DENSITIES
from btfl.methods.registry import find_method
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.results import Predictions, sample_rows
from making import make_client
from small import digits

SETTINGS = TrainingSettings.for_model("mlp", rounds=1, local_epochs=1)


def test_a_new_statistic_reaches_every_bundle_from_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = Statistic("feature_squares", ("dimensions",), lambda features, labels, classes: (features**2).sum(axis=0))
    monkeypatch.setattr(summary_module, "STATISTICS", (*summary_module.STATISTICS, largest))
    trained = train_federation(FedAvg(SETTINGS, (8, 8, 1), 10), digits(), LocalEngine())
    bundles = [trained.client(number).bundle for number in range(len(trained.outcomes))]
    squares = sum((bundle.statistic("train_features") ** 2).sum(axis=0) for bundle in bundles)
    for bundle in bundles:
        np.testing.assert_allclose(bundle.statistic("global_feature_squares"), squares)


@dataclass(frozen=True)
class Clipped:
    """Features no longer than 1, and noise on the class counts."""

    client: int

    def features(self, features: Any) -> Any:
        return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)

    def summary(self, summary: Summary) -> Summary:
        noise = np.random.default_rng(self.client).normal(size=summary.classes)
        return Summary({**summary.arrays, "class_counts": summary.arrays["class_counts"] + noise})


def test_clipping_and_noise_take_one_class_and_one_attribute() -> None:
    recipe = FedAvg(SETTINGS, (8, 8, 1), 10)
    plain = train_federation(recipe, digits(), LocalEngine()).total
    recipe.protection = Clipped
    noisy = train_federation(recipe, digits(), LocalEngine()).total
    assert plain is not None
    assert noisy is not None
    noise = sum(np.random.default_rng(client).normal(size=10) for client in range(4))
    np.testing.assert_allclose(noisy.class_sums().counts, plain.class_sums().counts + noise)
    assert np.trace(noisy.class_sums().scatter) <= noisy.samples + 1e-6 < np.trace(plain.class_sums().scatter)


def _distances(sums: ClassSums, shrinkage: float) -> ScoreHead:
    """Scores that are not linear: minus the distance to the class mean."""
    means = sums.sums / np.maximum(sums.counts, 1.0)[:, None]
    return ScoreHead(len(means), lambda features: -np.linalg.norm(features[:, None] - means, axis=2))


def test_another_density_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_client()
    monkeypatch.setitem(DENSITIES, "distance", _distances)
    method = Coherent(client.bundle, density="distance")
    stream = client.bundle.statistic("train_features")[:20]
    together = method.predict(stream)
    np.testing.assert_allclose(together.sum(axis=1), 1.0)
    method.reset()
    np.testing.assert_array_equal(np.concatenate([method.predict(row[None]) for row in stream]), together)


@dataclass(frozen=True)
class TrustSettings(Settings):
    trust: float = knob(0.5, "Weight of the global head.", least=0, most=1)


class Fixed(Method):
    """A whole method: a card, a setting, two columns."""

    cards: ClassVar[tuple[Card, ...]] = (Card("fixed", "Fixed", "a fixed weight", colour="#123456"),)
    settings_class: ClassVar[type[Settings]] = TrustSettings
    columns: ClassVar[Mapping[str, Column]] = {"e": Column("weight"), "surprise": Column("largest feature")}

    def predict(self, batch: Any) -> Any:
        bundle: ClientBundle = self.bundle
        self.found = np.full(len(batch), self.settings.trust), batch.max(axis=1)
        logits = self.settings.trust * bundle.global_head.logits(batch)
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_a_method_and_its_columns_are_one_file() -> None:
    client = make_client()
    variant = find_method(f"{__name__}:Fixed[trust=0.8]")
    variant.check()
    method = variant.build(client)
    stream = client.bundle.statistic("train_features")[:6]
    probabilities = method.predict(stream)
    labels, external = np.zeros(6, np.int64), np.zeros(6, np.bool_)
    found = Predictions(variant, 0, "original_ind", probabilities, labels, external, dict(method.trace))
    rows = sample_rows([found])
    assert (rows["e"] == 0.8).all()
    assert rows["surprise"].tolist() == stream.max(axis=1).tolist()
    assert variant.title == "Fixed [trust=0.8]"


class Warmer(Experiment):
    """An experiment with one more field: type, range, default and meaning, and nothing else."""

    warmth: float = Field(0.5, gt=0, le=2, description="How warm it is.")


def test_an_option_is_one_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_module, "Experiment", Warmer)
    (option,) = (each for each in experiment_options() if "--warmth" in each.opts)
    assert isinstance(option, click.Option)
    assert "How warm it is." in str(option.help)
    assert option.type.convert("1.5", option, None) == 1.5
    with pytest.raises(click.BadParameter, match="0<x<=2"):
        option.type.convert("3", option, None)
    made = make_experiment({"warmth": 1.5})
    assert isinstance(made, Warmer)
    assert made.warmth == 1.5
    with pytest.raises(InputError, match="warmth"):
        make_experiment({"warmth": 3})
