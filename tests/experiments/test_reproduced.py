"""What ``btfl reproduce --list`` says of the paper's tables and figures is what the rows in ``results/`` say."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btfl.cli.app import app
from btfl.experiments.evidence import Number, evidence
from btfl.experiments.reproduce import reproductions
from btfl.report import paper

ROOT = Path(__file__).parents[2]
NUMBERS = [(name, number) for name, told in evidence().items() for number in told.numbers]
IN_NAMES = re.compile(r"Dir\(\d+\.\d+\)|dir\d+\.\d+|CIFAR-10\.1")


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def test_every_table_and_figure_has_its_evidence() -> None:
    assert list(evidence()) == [each.name for each in reproductions()]
    for each in reproductions():
        told = evidence()[each.name]
        assert (told.agreement == "drawing") == each.drawing
        assert told.scale
        assert told.verdict
        if told.agreement in ("not run", "drawing"):
            assert not told.numbers


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="results/ is not here")
@pytest.mark.parametrize(
    ("name", "number"), NUMBERS, ids=lambda value: value if isinstance(value, str) else value.method
)
def test_each_number_is_that_of_the_rows(name: str, number: Number) -> None:
    from reproduced import found

    assert (ROOT / "results" / number.folder / "README.md").exists(), name
    assert number.ours == found(number)


@pytest.mark.parametrize(
    ("name", "number"), NUMBERS, ids=lambda value: value if isinstance(value, str) else value.method
)
def test_the_papers_numbers_are_those_it_prints(name: str, number: Number) -> None:
    if number.paper is None:
        return
    method, _, settings = number.method.partition("[")
    model = "cnn@batch1" if settings == "test_batch=1]" else "cnn"
    printed = paper.printed("cifar10", model, 0.1, paper.METHODS[method])
    assert printed[number.stream].accuracy == number.paper, name


def test_the_sentences_hold_no_numbers_that_no_row_checks() -> None:
    for told in evidence().values():
        for text in (told.scale, told.verdict):
            assert not re.search(r"\d+\.\d", IN_NAMES.sub("", text)), text


def test_folders_that_sentences_name_exist() -> None:
    known = {path.parent.name for path in (ROOT / "results").glob("*/README.md")}
    for told in evidence().values():
        named = re.findall(
            r"(?:results/)?((?:cifar10|officehome|pacs|office31|tiny)-[\w.-]*\w)", told.scale + told.verdict
        )
        assert {name for name in named if "zoo:" + name not in told.scale} <= known


def test_the_list_fits_eighty_columns_and_says_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = CliRunner().invoke(app, ["reproduce", "--list"]).output
    assert max(map(len, said.splitlines())) <= 80
    together = " ".join(said.split())
    for name, told in evidence().items():
        assert f"{name}: " in together
        assert f"{told.agreement}: {told.verdict}" in together
        assert told.scale in together
        for number in told.numbers:
            assert f"{number.method} {number.ours:.{3 if number.measure == 'mean_e' else 2}f}" in together


def test_the_list_as_json_has_every_number() -> None:
    listed = json.loads(CliRunner().invoke(app, ["reproduce", "--list", "--json"]).output)["reproductions"]
    (table2,) = (each for each in listed if each["name"] == "table2")
    assert table2["agreement"] == evidence()["table2"].agreement
    assert [number["ours"] for number in table2["numbers"]] == [number.ours for number in evidence()["table2"].numbers]
