"""Every table and figure of the paper has a name, the paper's settings, and an honest smaller form."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from btfl.data.catalogue import load_source
from btfl.errors import DataError, InputError, UnknownNameError
from btfl.experiments import reproduce
from btfl.experiments.reproduce import Substitution, plan, read_reproduction, reproduction_names
from btfl.report import paper


@pytest.fixture(autouse=True)
def _digits_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "load_source", _load_source)


_load_source = cache(load_source)
DIGITS = Substitution(dataset="digits")
NAMES = reproduction_names()
RUNNABLE = [name for name in NAMES if not read_reproduction(name).drawing]


def test_all_seven_tables_and_six_figures_are_named() -> None:
    assert [*(f"figure{i}" for i in range(1, 7)), *(f"table{i}" for i in range(1, 8))] == NAMES
    for name in NAMES:
        found = read_reproduction(name)
        assert found.paper.lower().replace(" ", "").startswith(name)
        assert found.title


@pytest.mark.parametrize("name", RUNNABLE)
def test_settings_are_the_papers(name: str) -> None:
    found = read_reproduction(name)
    for changes in found.runs:
        values: dict[str, Any] = {**found.values, **changes}
        setup = paper.SETUPS[values["dataset"]]
        assert values["clients"] == setup.clients
        assert values["training"]["rounds"] == setup.rounds
        assert values["training"].get("batch", 32) == setup.batch
        assert values.get("split", "honest") == "honest"


@pytest.mark.parametrize("name", RUNNABLE)
def test_each_can_be_made_small_and_says_so(name: str) -> None:
    experiments = plan(read_reproduction(name), 0.05, DIGITS)
    assert experiments
    for experiment in experiments:
        assert experiment.dataset == "digits"
        assert experiment.model != "cnn"  # 8x8 is too small for it
        assert experiment.clients <= 5
        assert experiment.training["rounds"] <= 7
        told = " ".join(experiment.notes)
        assert read_reproduction(name).paper in told
        assert "digits takes the place of" in told
        assert f"{experiment.training['rounds']} rounds for" in told
        assert f"{experiment.clients} clients for" in told
        assert "images of 1,797" in told
    names = [(e.name, e.seed) for e in experiments]
    assert len(names) == len(set(names)), "two runs would share a folder"


def test_at_full_scale_nothing_but_the_dataset_is_changed() -> None:
    experiments = plan(read_reproduction("table5"), 1.0, DIGITS)
    assert [e.seed for e in experiments] == [0, 1, 2]
    assert experiments[0].samples is None
    assert (experiments[0].clients, experiments[0].training["rounds"]) == (10, 50)
    assert not any("scale" in note for note in experiments[0].notes)


def test_wrong_words_get_a_sentence() -> None:
    with pytest.raises(UnknownNameError, match="table2"):
        read_reproduction("tabel2")
    with pytest.raises(InputError, match="a drawing"):
        plan(read_reproduction("figure2"), 1.0)
    for scale in (0.0, -1.0, 1.5):
        with pytest.raises(InputError, match="above 0 and at most 1"):
            plan(read_reproduction("table2"), scale, DIGITS)
    with pytest.raises(DataError, match="--dataset digits"):
        plan(read_reproduction("table4"), 0.1)  # ImageNet-32 is not at hand here
