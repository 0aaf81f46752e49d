"""The names of a run's files: those that users have on disk, and built in one module only."""

from __future__ import annotations

import ast
from pathlib import Path

import btfl
from btfl.runs.layout import RunFiles, client_name, client_number, network_record

RUN = RunFiles(Path("run"))


def test_the_names_are_those_of_every_folder_there_is() -> None:
    training = RUN.training("fedavg")
    places = {
        RUN.record: "run.json",
        RUN.results: "results.parquet",
        RUN.samples: "samples.parquet",
        RUN.costs: "speed.json",
        training.older_record: "training/fedavg/run.json",
        training.log: "training/fedavg/log.jsonl",
        training.checkpoint(1): "training/fedavg/checkpoints/round-000001",
        training.private(3, 1): "training/fedavg/private/client-000003-round-000001",
        training.final.record: "training/fedavg/final/federation.json",
        training.final.client(3): "training/fedavg/final/client-000003",
    }
    assert {place: place.relative_to("run").as_posix() for place in places} == places
    assert network_record("finetuned") == "network-finetuned"
    assert client_number(Path(client_name(12))) == 12
    assert client_number(Path("final")) is None


def test_what_exists_is_found(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    assert files.trained() == {}
    assert files.training("fedavg").rounds() == []
    for round_ in (9, 10, 11):
        files.training("fedavg").checkpoint(round_).mkdir(parents=True)
    assert files.training("fedavg").rounds() == []  # none is complete
    for round_ in (9, 10):
        files.training("fedavg").checkpoint_record(round_).touch()
    for recipe in ("fedrep", "fedavg"):
        files.training(recipe).final.folder.mkdir(parents=True)
    assert files.trained() == {}  # not complete yet
    for recipe in ("fedrep", "fedavg"):
        files.training(recipe).final.record.touch()
    assert list(files.trained()) == ["fedavg", "fedrep"]
    assert files.training("fedavg").rounds() == [10, 9]


def test_no_other_module_builds_these_paths() -> None:
    root = Path(btfl.__file__).parent
    names = {
        "run.json", "training.json", "results.parquet", "samples.parquet", "speed.json", "federation.json", "log.jsonl",
        "checkpoints",
    }  # fmt: skip
    found = {
        f"{path.relative_to(root)}: {node.value}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names and path.name != "layout.py"
    }
    assert found == set()
