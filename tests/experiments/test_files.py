"""Experiments as files: one schema, those that come with btfl by name, and one's own by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import experiment_names, read_experiment, read_preset


def test_presets_the_papers_tables_and_kept_results_come_with_btfl() -> None:
    assert {"demo", "quick", "paper", "table2", "figure6", "ablation", "pacs-cnn-dir0.1"} <= set(experiment_names())


@pytest.mark.parametrize("name", experiment_names())
def test_each_has_settings_of_an_experiment(name: str) -> None:
    file = read_experiment(name)
    assert file.name == name
    if file.drawing:
        with pytest.raises(InputError, match="nothing to run"):
            file.first()
    else:
        for run in file.runs:
            make_experiment({**file.values, **run})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('titel = "x"', "Did you mean title"),
        ("clinets = 3", "Did you mean clients"),
        ("[[runs]]\nalhpa = 1.0", "Did you mean alpha"),
        ("[[runs]]\nseeds = [1]", "or seed or"),  # a run changes settings, and nothing else
        ("seeds = 3", "seeds must be a list, not 3"),
        ("drawing = 'maybe'", "drawing must be true or false"),
        ("runs = []", "runs"),
        ("x = = 1", "not valid TOML"),
        ("x = " + "[" * 5000, "not valid TOML"),
        ("x = " + "9" * 5000, "not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_named(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises((InputError, UnknownNameError), match=expected):
        read_experiment(path)


def test_a_name_that_is_none_gets_the_nearest_and_a_path_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean table2"):
        read_experiment("tabel2")
    with pytest.raises(InputError, match=r"is a folder, not an experiment: .* use --from"):
        read_experiment(tmp_path)
    with pytest.raises(UnknownNameError, match="Did you mean demo"):
        read_preset("dmo")
    with pytest.raises(StorageError, match=r"nowhere.toml does not exist$"):
        read_experiment(tmp_path / "nowhere.toml")
    with pytest.raises(StorageError, match="does not exist; btfl has an experiment 'ablation'"):
        read_experiment("results/experiments/ablation.toml")


def test_the_first_run_is_that_of_the_first_seed_and_the_first_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("clients = 4\nalpha = 0.3\nseeds = [7, 8]\n[[runs]]\nalpha = 0.5\n[[runs]]\nalpha = 1.0\n")
    assert read_experiment(path).first() == {"clients": 4, "alpha": 0.5, "seed": 7}


@pytest.mark.parametrize("content", ["clients = 4".encode("utf-16"), 'name = "Zürich"'.encode("latin-1"), b"\xff\x00"])
def test_a_file_that_is_not_utf_8_is_no_toml(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(InputError, match="text in UTF-8"):
        read_experiment(tmp_path / "mine.toml")


def test_a_mark_of_the_byte_order_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("clients = 4", encoding="utf-8-sig")
    assert read_experiment(tmp_path / "mine.toml").values == {"clients": 4}
