"""FedRep: the extractor travels, the head stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.data.federated import FederatedData
from btfl.engines.base import Broadcast, Failure, Job, Result, Session
from btfl.engines.federation import train_federation
from btfl.engines.local import LocalEngine
from btfl.methods.registry import find_method
from btfl.models import to_arrays
from btfl.models.forward import extract, logits
from btfl.recipes.base import Description, Recipe, Update
from btfl.recipes.fedrep import FedRep
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import train_head
from btfl.runs.trained import TrainedFederation
from small import digits

SETTINGS = TrainingSettings.for_model("mlp", rounds=2, local_epochs=2)


@dataclass
class Wire:
    """An engine that works as another does, and writes down everything that passes between server and clients."""

    engine: LocalEngine = field(default_factory=LocalEngine)
    sent: list[Broadcast] = field(default_factory=list)
    returned: list[Update | Description] = field(default_factory=list)

    @contextmanager
    def open(self, recipe: Recipe, data: FederatedData) -> Iterator[Session]:
        with self.engine.open(recipe, data) as session:
            yield _Tapped(session, self)


@dataclass
class _Tapped:
    session: Session
    wire: Wire

    def run(self, broadcast: Broadcast, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | Failure]]:
        self.wire.sent.append(broadcast)
        for job, result in self.session.run(broadcast, jobs):
            if isinstance(result, Update | Description):
                self.wire.returned.append(result)
            yield job, result


@pytest.fixture(scope="module")
def wire() -> Wire:
    return Wire()


@pytest.fixture(scope="module")
def trained(wire: Wire) -> TrainedFederation:
    return train_federation(FedRep(SETTINGS, (8, 8, 1), 10), digits(), wire)


def _uploaded(item: Update | Description) -> Mapping[str, Any]:
    return item.upload if isinstance(item, Update) else item.summary.arrays


def test_the_head_is_in_nothing_that_passes_over_the_wire(trained: TrainedFederation, wire: Wire) -> None:
    assert len([item for item in wire.returned if isinstance(item, Update)]) == 2 * 4
    head_shape = trained.client(0).bundle.personal_head.weight.shape
    heads = [item.private["head.weight"] for item in wire.returned]
    for passed in (*(_uploaded(item) for item in wire.returned), *(b.shared for b in wire.sent), trained.shared):
        assert not [name for name in passed if "head" in name]
        for name, array in passed.items():
            if array.shape == head_shape and name != "class_feature_sums":  # those have the shape, but are features
                assert not any(np.array_equal(array, head) for head in heads)
    assert all(name.startswith("extractor.") for name in trained.shared)


def test_every_client_has_a_head_of_its_own(trained: TrainedFederation) -> None:
    heads = [trained.client(number).bundle.personal_head.weight for number in range(4)]
    for number, head in enumerate(heads):
        assert all(np.abs(head - other).max() > 1e-3 for other in heads[:number])


def test_both_heads_of_the_bundle_are_the_private_one(trained: TrainedFederation) -> None:
    bundle = trained.client(3).bundle
    np.testing.assert_array_equal(bundle.global_head.weight, bundle.personal_head.weight)


def test_the_head_is_trained_first_and_the_extractor_under_it() -> None:
    recipe, own = FedRep(SETTINGS, (8, 8, 1), 10), digits().of(0, 1)
    shared = recipe.initial()
    update = recipe.train(1, shared, {}, own)
    assert any(np.abs(update.upload[name] - shared[name]).max() > 1e-4 for name in shared)
    # The head that is kept was trained on the extractor that was received, and stood still while that moved on.
    network = recipe.assembled(shared, {})
    train_head(network.head, network, own.train, SETTINGS.local_epochs, SETTINGS, "head", 1, 0)
    np.testing.assert_array_equal(to_arrays(network)["head.weight"], update.private["head.weight"])


def test_the_head_lives_through_the_rounds() -> None:
    recipe = FedRep(SETTINGS, (8, 8, 1), 10)
    shared, own = recipe.initial(), digits().of(0, 1)
    first = recipe.train(1, shared, {}, own)
    again = recipe.train(2, shared, first.private, own)
    from_scratch = recipe.train(2, shared, {}, own)
    assert not np.array_equal(again.private["head.weight"], from_scratch.private["head.weight"])


def test_features_come_from_fedreps_own_extractor(trained: TrainedFederation) -> None:
    client = trained.client(1)
    own = digits().of(1, 2)
    features = extract(client.extractor(), own.validation.values)
    np.testing.assert_allclose(features, client.bundle.statistics["validation_features"], atol=1e-5)
    whole = client.network("personal")
    answers = find_method("fedrep").build(client).predict(features.astype(np.float64))
    assert (answers.argmax(1) == logits(whole, own.validation.values).argmax(1)).all()


def test_it_learns_the_clients_own_label_mix(trained: TrainedFederation) -> None:
    right = []
    for number in range(4):
        client = trained.client(number)
        statistics = client.bundle.statistics
        answers = find_method("fedrep").build(client).predict(statistics["validation_features"].astype(np.float64))
        right.append((answers.argmax(1) == statistics["validation_labels"]).mean())
    assert np.mean(right) > 0.85


def test_it_survives_being_saved(trained: TrainedFederation, tmp_path: Path) -> None:
    trained.save(tmp_path)
    again = TrainedFederation.load(tmp_path).client(3)
    for name, array in to_arrays(again.extractor()).items():
        np.testing.assert_array_equal(array, trained.client(3).networks["personal"][name])
