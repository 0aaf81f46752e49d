"""A finished training goes on for more rounds, and another one begins with its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from btfl.core.provenance import Provenance
from btfl.engines import LocalEngine, train_federation
from btfl.engines.federation import Initial, is_finished
from btfl.errors import BtflError
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.runs.layout import FederationFiles
from btfl.runs.trained import TrainedFederation
from small import digits


def train(folder: Path | None, rounds: int, recipe: str = "fedavg", **options: object) -> TrainedFederation:
    settings = TrainingSettings.for_model("mlp", rounds=rounds, local_epochs=1)
    made = make_recipe(recipe, settings, (8, 8, 1), 10)
    return train_federation(made, digits(), LocalEngine(), folder=folder, **options)  # type: ignore[arg-type]


def test_going_on_comes_to_the_same_as_training_so_long_at_once(tmp_path: Path) -> None:
    first = train(tmp_path, 2)
    assert first.provenance is not None
    assert first.provenance.round == 2
    before = first.digest()
    longer = train(tmp_path, 4, longer=True)
    assert longer.digest() == train(None, 4).digest() != before
    loaded = TrainedFederation.load(tmp_path / "final")
    assert loaded.digest() == longer.digest()
    files = FederationFiles.current(tmp_path / "final")
    assert files.inside == "after-000004"
    assert sorted(path.name for path in (tmp_path / "final").glob("client-*")) == []  # the old ones are gone
    provenance = Provenance.of_bundle(loaded.client(0).bundle)
    assert provenance == loaded.provenance
    assert provenance is not None
    assert (provenance.run, provenance.round) == (first.provenance.run, 4)
    assert provenance.extractor != first.provenance.extractor
    assert provenance.classes == tuple("0123456789")


def test_a_second_time_and_a_third(tmp_path: Path) -> None:
    for rounds in (1, 2, 3):
        found = train(tmp_path, rounds, longer=True)
    assert found.digest() == train(None, 3).digest()
    assert sorted(path.name for path in (tmp_path / "final").iterdir() if path.is_dir()) == ["after-000003"]


def test_without_being_asked_it_does_not_go_on_and_backwards_never(tmp_path: Path) -> None:
    train(tmp_path, 2)
    with pytest.raises(BtflError, match=r"settings.rounds \(2 there, 3 asked for\)"):
        train(tmp_path, 3)
    with pytest.raises(BtflError, match="for 2 rounds already"):
        train(tmp_path, 1, longer=True)
    assert is_finished(tmp_path, 2)
    assert not is_finished(tmp_path, 3)


def test_other_settings_are_another_run_even_so(tmp_path: Path) -> None:
    train(tmp_path, 1)
    settings = TrainingSettings.for_model("mlp", rounds=2, local_epochs=2)
    with pytest.raises(BtflError, match="local_epochs"):
        train_federation(
            make_recipe("fedavg", settings, (8, 8, 1), 10), digits(), LocalEngine(), folder=tmp_path, longer=True
        )


def test_another_federation_begins_with_the_weights(tmp_path: Path) -> None:
    first = train(None, 2)
    same = train(tmp_path, 0, initial=Initial("first", first.shared))
    assert all(np.array_equal(same.shared[name], first.shared[name]) for name in first.shared)
    assert train(tmp_path, 0, initial=Initial("first", first.shared)).digest() == same.digest()
    with pytest.raises(BtflError, match="another run"):
        train(tmp_path, 0)


def test_a_head_of_other_classes_is_left_and_an_extractor_of_another_shape_is_refused() -> None:
    first = train(None, 1)
    fewer = make_recipe("fedavg", TrainingSettings.for_model("mlp", rounds=0), (8, 8, 1), 7)
    begun = Initial("first", first.shared).of(fewer)
    assert begun["head.weight"].shape[0] == 7
    other = make_recipe("fedavg", TrainingSettings.for_model("mlp", rounds=0), (9, 9, 1), 10)
    with pytest.raises(BtflError, match="do not fit the model"):
        Initial("first", first.shared).of(other)


def test_outcomes_lie_on_disk_until_they_are_asked_for(tmp_path: Path) -> None:
    found = train(tmp_path, 1)
    assert found.missing == []
    assert len(found.outcomes) == 4
    (tmp_path / "final" / "client-000002" / "bundle.json").unlink()
    assert found.outcome(1).bundle.classes == 10
    with pytest.raises(BtflError, match=r"bundle\.json is missing"):
        found.outcome(2)
