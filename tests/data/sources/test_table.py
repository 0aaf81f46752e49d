"""A user's own table: columns become features, classes and clients; every refusal names file and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from btfl.data.catalogue import load_source
from btfl.data.sources import table
from btfl.errors import DataError, InputError, UnknownNameError

ROWS: dict[str, Any] = {
    "height": [1.5, 2.5, 3.5, 4.5],
    "count": [1, 2, 3, 4],
    "when": [30, 10, 40, 20],
    "ok": [True, False, True, True],
    "remark": list("wxyz"),
    "label": ["cat", "dog", "cat", "owl"],
    "client": [7, 3, 3, 7],
}


def saved(folder: Path, kind: str = "csv", name: str = "mine", **changes: Any) -> Path:
    path = folder / f"{name}.{kind}"
    frame = pd.DataFrame({key: value for key, value in {**ROWS, **changes}.items() if value is not None})
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("at_once", [2, 100])
def test_columns_become_features_classes_and_clients(
    tmp_path: Path, kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_ROWS", at_once)
    source = load_source("table", root=saved(tmp_path, kind))
    assert repr(source) == "Source('mine', 4 vectors of 4, 2 clients, 3 classes, no other domain)"
    np.testing.assert_array_equal(source.pool.values[1], np.array([2.5, 2, 10, 0], np.float32))
    assert source.classes == ("cat", "dog", "owl")
    assert source.pool.labels.tolist() == [0, 1, 0, 2]
    assert source.owner_names == ("3", "7")
    assert source.owners is not None
    assert source.owners.tolist() == [1, 0, 0, 1]
    assert any("hold no numbers are left out: remark" in note for note in source.notes)
    ordered = load_source("table", root=saved(tmp_path, kind), order="when")
    assert ordered.pool.labels.tolist() == [1, 2, 0, 0]
    assert ordered.sample_shape == (3,)


def test_columns_can_have_other_names_and_labels_can_be_numbers(tmp_path: Path) -> None:
    path = saved(tmp_path, label=[5, 9, 5, 9], client=None, who=list("abab"))
    source = load_source("table", root=path, client="who")
    assert source.classes == ("5", "9")
    assert source.owner_names == ("a", "b")
    assert load_source("table", root=path, label="who").classes == ("a", "b")
    assert load_source("table", root=path).owners is None


def test_another_file_is_the_other_domain(tmp_path: Path) -> None:
    other = saved(tmp_path, "parquet", "elsewhere", label=["owl", "cat", "cat", "cat"])
    source = load_source("table", root=saved(tmp_path), shift=other)
    assert source.shift_name == "elsewhere"
    assert source.shifted is not None
    assert source.shifted.labels.tolist() == [2, 0, 0, 0]
    with pytest.raises(DataError, match="its classes emu are none of cat, dog, owl"):
        load_source("table", root=saved(tmp_path), shift=saved(tmp_path, name="far", label=["emu"] * 4))
    with pytest.raises(DataError, match=r"narrow\.csv lacks the columns height of mine\.csv"):
        load_source("table", root=saved(tmp_path), shift=saved(tmp_path, name="narrow", height=None))


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({}, {"label": "lable"}, "unknown column of mine.csv 'lable'. Did you mean label"),
        ({"label": None}, {}, "unknown column of mine.csv 'label'"),
        ({}, {"client": "person"}, "unknown column of mine.csv 'person'"),
        ({}, {"order": "time"}, "unknown column of mine.csv 'time'"),
        ({"height": [1.0, None, 2.0, 3.0]}, {}, "the column 'height' is empty, NaN or infinite in row 1"),
        ({"height": [1.0, 2.0, 3.0, float("inf")]}, {}, "the column 'height' is empty, NaN or infinite in row 3"),
        ({"label": ["a", None, "b", "b"]}, {}, "the column 'label' is empty in row 1"),
        ({"client": [1, 2, None, 2]}, {}, "the column 'client' is empty in row 2"),
        ({"label": [0.5, 1.0, 0.5, 1.0]}, {}, "the column 'label' must hold text or whole numbers, not fractions"),
        ({"count": [1, 2, 3, 2**40 + 1]}, {}, "column 'count': .* cannot hold 1099511627777"),
        ({"height": None, "count": None, "when": None, "ok": None}, {}, "no column of numbers beside client, label"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises((DataError, UnknownNameError), match=sentence):
        load_source("table", root=saved(tmp_path, **changes), **options)


def test_files_that_are_no_table_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(DataError, match=r"empty\.csv is empty, or no table"):
        load_source("table", root=empty)
    headed = tmp_path / "headed.csv"
    headed.write_text("label,x\n")
    with pytest.raises(DataError, match=r"headed\.csv holds no row"):
        load_source("table", root=headed)
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"PAR1 nothing")
    with pytest.raises(DataError, match=r"damaged\.parquet is no table that can be read"):
        load_source("table", root=damaged)
    with pytest.raises(DataError, match="there is no file"):
        load_source("table", root=tmp_path / "absent.csv")
    with pytest.raises(DataError, match="is a folder, not a table"):
        load_source("table", root=tmp_path)
    separated = tmp_path / "separated.csv"
    separated.write_text("label;x\na;1\nb;2\n")
    with pytest.raises(DataError, match=r"separated\.csv has ';' between its columns; btfl reads \.csv with commas"):
        load_source("table", root=separated)
    other = tmp_path / "mine.xlsx"
    other.write_bytes(b"x")
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        load_source("table", root=other)
    with pytest.raises(InputError, match="needs the path of a Parquet or CSV"):
        load_source("table")


def test_row_numbers_that_pandas_wrote_are_no_feature(tmp_path: Path) -> None:
    """They would give the label away where rows are sorted by it."""
    path = tmp_path / "numbered.csv"
    path.write_text(",label,x\n0,a,1.5\n1,a,2.5\n2,b,3.5\n")
    source = load_source("table", root=path)
    assert source.pool.values.tolist() == [[1.5], [2.5], [3.5]]
    assert "1 columns without a name (row numbers, perhaps) are left out" in source.notes


def test_a_word_that_is_read_as_empty_is_named(tmp_path: Path) -> None:
    path = tmp_path / "countries.csv"
    path.write_text("label,client,x\na,DE,1\nb,NA,2\n")
    with pytest.raises(DataError, match=r"'client' is empty in row 1 \(the first is 0\); the words NA, None, null"):
        load_source("table", root=path)


def test_a_column_may_be_called_like_a_number(tmp_path: Path) -> None:
    path = tmp_path / "years.csv"
    path.write_text("2024,true,x\na,p,1\nb,q,2\n")
    source = load_source("table", root=path, label=2024, client=True)  # as TOML and --set read them
    assert source.classes == ("a", "b")
    assert source.owner_names == ("p", "q")
