"""Every entry that comes with btfl, as far as that goes without its data: the card, the weights, and their origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from btfl.errors import StorageError
from btfl.experiments.experiment import Experiment
from btfl.methods.registry import find_method
from btfl.recipes.registry import recipe_class
from btfl.report.groups import load_runs, runs_in
from btfl.zoo.serving import load_serving
from btfl.zoo.start import ZooEntry, zoo_entries

RESULTS = Path(__file__).parents[2] / "results"
KEPT = {
    "cifar10-cnn-dir0.1": "cifar10-cnn-dir0.1",
    "cifar10-cnn-dir0.1-quick": "cifar10-cnn-dir0.1-short",
    "cifar10-cnn-dir0.5-short": "cifar10-cnn-dir0.5-short-second",
    "cifar10-cnn-dir1.0-short": "cifar10-cnn-dir1.0-short-second",
    "cifar10-resnet20-dir0.1-half": "cifar10-resnet20-dir0.1-half",
    "cifar10-resnet20-dir0.1-small": "cifar10-resnet20-dir0.1-small-second",
    "hapt-natural": "hapt-natural",
    "office31-cnn-dir0.1": "office31-cnn-dir0.1-second",
    "pacs-cnn-dir0.1": "pacs-cnn-dir0.1-second",
    "tiny-imagenet-cnn-dir0.1": "tiny-imagenet-cnn-dir0.1-second",
}
"""Entry -> the folder of results/ whose table it makes; the first two were trained and tested on different machines."""
ENTRIES = zoo_entries()


@pytest.fixture(params=ENTRIES, ids=lambda entry: str(entry.card["name"]))
def entry(request: pytest.FixtureRequest) -> ZooEntry:
    found: ZooEntry = request.param
    return found


def test_the_weights_of_every_recipe_load_and_are_finite(entry: ZooEntry) -> None:
    for recipe, told in entry.card["recipes"].items():
        spec, state = entry.end_of_training(recipe)
        assert state.round == told["rounds"] == len(state.history)
        assert spec["recipe"] == recipe
        assert len(told["sha256"]) == 64
        assert set(state.private) in (set(), set(range(entry.clients)))
        owners = [state.shared, *state.private.values()]
        assert all(np.isfinite(array).all() for weights in owners for array in weights.values())


def test_its_methods_need_no_other_recipe(entry: ZooEntry) -> None:
    experiment = Experiment(**entry.experiment)
    assert experiment.methods
    for name in experiment.methods:
        recipe = find_method(name).trained_with
        assert {recipe, recipe_class(recipe).rounds_of} & set(entry.recipes), name
    assert "root" not in entry.experiment
    assert not [value for value in entry.experiment.values() if isinstance(value, str) and "/" in value]


def test_what_is_served_has_the_shared_weights_of_the_entry(entry: ZooEntry) -> None:
    if not (entry.folder / "serving.json").exists():
        with pytest.raises(StorageError):
            load_serving(entry.folder)
        return
    shared = entry.end_of_training("fedavg")[1].shared
    serving = load_serving(entry.folder)
    assert sorted(serving.bundles) == list(range(entry.clients))
    for bundle in serving.bundles.values():
        assert any(np.array_equal(bundle.global_head.weight, array) for array in shared.values())


@pytest.mark.parametrize("name", list(KEPT)[2:])
def test_an_entry_was_trained_for_the_committed_table(name: str) -> None:
    if not RESULTS.exists():
        pytest.skip("results/ is not here")
    (entry,) = (each for each in ENTRIES if each.card["name"] == name)
    page = (RESULTS / KEPT[name] / "README.md").read_text()
    (line,) = (line for line in page.splitlines() if "trained federations" in line)
    assert f"fedavg {entry.digest('fedavg')[:16]}" in line


@pytest.mark.parametrize("name", KEPT)
def test_one_command_makes_every_row_of_the_committed_table_that_its_recipes_can(name: str) -> None:
    if not RESULTS.exists():
        pytest.skip("results/ is not here")
    (entry,) = (each for each in ENTRIES if each.card["name"] == name)
    rows = load_runs(runs_in(RESULTS / KEPT[name]))[0].rows
    can = {
        method
        for method, recipe in zip(rows["method"], rows["recipe"], strict=True)
        if recipe in entry.recipes or recipe_class(recipe).rounds_of in entry.recipes
    }
    if "coherent" not in can:  # a table of btfl 0.1, whose Coherent is now `--method coherent-1`
        can.discard("coherent-1")
    assert can <= set(entry.experiment["methods"])


def test_the_zoo_stays_small() -> None:
    assert sum(path.stat().st_size for entry in ENTRIES for path in entry.folder.iterdir()) < 25_000_000
