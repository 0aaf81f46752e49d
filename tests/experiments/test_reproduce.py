"""Every table and figure of the paper has a name, the paper's settings, and an honest smaller form."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from btfl.data.catalogue import load_source
from btfl.errors import DataError, InputError, UnknownNameError
from btfl.experiments import reproduce
from btfl.experiments.files import read_experiment
from btfl.experiments.reproduce import Substitution, plan, reproductions
from btfl.report import paper


@pytest.fixture(autouse=True)
def _digits_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "load_source", _load_source)


_load_source = cache(load_source)
DIGITS = Substitution(dataset="digits")
FILES = reproductions()
RUNNABLE = [file.name for file in FILES if not file.drawing]


def test_all_seven_tables_and_six_figures_are_named() -> None:
    names = [*(f"figure{i}" for i in range(1, 7)), *(f"table{i}" for i in range(1, 8))]
    assert [file.name for file in FILES] == names
    for file in FILES:
        assert file.paper.lower().replace(" ", "").startswith(file.name)
        assert file.title


@pytest.mark.parametrize("name", RUNNABLE)
def test_settings_are_the_papers(name: str) -> None:
    found = read_experiment(name)
    for changes in found.runs:
        values: dict[str, Any] = {**found.values, **changes}
        setup = paper.SETUPS[values["dataset"]]
        assert values["clients"] == setup.clients
        assert values["training"]["rounds"] == setup.rounds
        assert values["training"].get("batch", 32) == setup.batch
        assert values.get("split", "honest") == "honest"


@pytest.mark.parametrize("name", RUNNABLE)
def test_each_can_be_made_small_and_says_so(name: str) -> None:
    experiments = plan(read_experiment(name), 0.05, DIGITS)
    assert experiments
    for experiment in experiments:
        assert experiment.dataset == "digits"
        assert experiment.model != "cnn"  # 8x8 is too small for it
        assert experiment.clients is not None
        assert experiment.clients <= 5
        assert experiment.training["rounds"] <= 7
        told = " ".join(experiment.notes)
        assert read_experiment(name).paper in told
        assert "digits takes the place of" in told
        assert f"{experiment.training['rounds']} rounds for" in told
        assert f"{experiment.clients} clients for" in told
        assert "images of 1,797" in told
    names = [(e.name, e.seed) for e in experiments]
    assert len(names) == len(set(names)), "two runs would share a folder"


def test_at_full_scale_nothing_but_the_dataset_is_changed() -> None:
    experiments = plan(read_experiment("table5"), 1.0, DIGITS)
    assert [e.seed for e in experiments] == [0, 1, 2]
    assert experiments[0].samples is None
    assert (experiments[0].clients, experiments[0].training["rounds"]) == (10, 50)
    assert not any("scale" in note for note in experiments[0].notes)


def test_an_experiment_of_ones_own_is_run_with_each_of_its_seeds_and_changes(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'model = "mlp"\nclients = 4\nseeds = [3, 4]\n[[runs]]\nalpha = 0.5\n[[runs]]\nalpha = 1.0\n'
    )
    experiments = plan(read_experiment(tmp_path / "mine.toml"), 1.0)
    assert [(e.alpha, e.seed) for e in experiments] == [(0.5, 3), (0.5, 4), (1.0, 3), (1.0, 4)]
    assert not any(e.notes for e in experiments)


def test_wrong_words_get_a_sentence() -> None:
    with pytest.raises(UnknownNameError, match="table2"):
        read_experiment("tabel2")
    with pytest.raises(InputError, match="a drawing"):
        plan(read_experiment("figure2"), 1.0)
    for scale in (0.0, -1.0, 1.5):
        with pytest.raises(InputError, match="above 0 and at most 1"):
            plan(read_experiment("table2"), scale, DIGITS)
    with pytest.raises(DataError, match="--dataset digits"):
        plan(read_experiment("table4"), 0.1)  # ImageNet-32 is not available here
