"""The command line as a person uses it: in a process of its own, with right and wrong words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
FAST = ["--set", "training.rounds=2", "--set", "training.local_epochs=1", "--clients", "4", "--workers", "1"]


def btfl(*words: str, folder: Path, ok: bool = True) -> str:
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from btfl.cli import main; main()", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_demo_ends_with_a_table_and_a_report_and_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    said = btfl("demo", "--out", "here", folder=tmp_path)
    for words in ("FedAvg+FT", "Personal head", "BTFL", "Oracle", "mean", "printed digits"):
        assert words in said
    report = re.search(r"Report: (\S+)", said)
    assert report is not None
    assert "<table" in (tmp_path / report[1]).read_text()
    btfl("demo", "--out", "there", "--workers", "1", folder=tmp_path)
    for name in ("results.parquet", "samples.parquet", "streams.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    rows = pd.read_parquet(tmp_path / "here" / "results.parquet")
    rows = rows[rows["stream"] != "switching"]  # for looking at only
    wide = rows.groupby(["method", "stream"])["accuracy"].mean().unstack()
    for method in ("fedavg", "personal", "btfl", "btfl-release"):  # the oracle is the ceiling in every stream
        assert (wide.loc["oracle"] >= wide.loc[method]).all()
    assert wide.loc["personal", "original_ind"] > wide.loc["personal", "original_exd"] + 0.2


def test_a_method_of_ones_own_as_the_docs_show_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "adding-a-method.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "my_method.py").write_text(code)
    said = btfl(
        "bench", "--preset", "demo", *FAST, "--method", "btfl", "--method", "my_method:Halfway",
        "--method", "my_method:Halfway[e=0.8]", folder=tmp_path,
    )  # fmt: skip
    assert "Halfway [e=0.8]" in said
    assert "0.800" in said


def test_an_experiment_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ndataset = "digits"\nshift = "none"\nmodel = "mlp"\nclients = 4\nmethods = ["fedavg"]\n'
        "[training]\nrounds = 1\n"
    )
    said = btfl("bench", "mine.toml", "--workers", "1", folder=tmp_path)
    assert "corrupted throughout" in said
    assert (tmp_path / "runs" / "mine" / "results.parquet").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench", "--preset", "demo", "--method", "btlf"], "Did you mean btfl"),
        (["bench", "--preset", "demo", "--method", "btfl[smothing=none]"], "Did you mean smoothing"),
        (["bench", "--preset", "demo", "--method", "fedthe[stps=3]"], "Did you mean steps"),
        (["bench", "--preset", "demo", "--method", "btfl[prune_above=1]"], "prune_above must be"),
        (["bench", "--preset", "demo", "--method", "nowhere:Thing"], "no module 'nowhere'"),
        (["bench", "--preset", "dmo"], "Did you mean demo"),
        (["bench", "--dataset", "cifar11"], "Did you mean cifar10"),
        (["bench", "--preset", "demo", "--model", "cnm"], "Did you mean cnn"),
        (["bench", "--preset", "demo", "--clients", "5000"], "at most"),
        (["bench", "--preset", "demo", "--alpha", "-1"], "alpha"),
        (["bench", "--preset", "demo", "--set", "colour=red"], "unknown setting of an experiment 'colour'"),
        (["bench", "--preset", "demo", "--set", "training.round=3"], "Did you mean rounds"),
        (["bench", "nowhere.toml"], "does not exist"),
        (["bench", "--dataset", "arrays", "--root", "nowhere.npz", "--model", "cnn"], "nowhere.npz"),
        (["data", "get", "mnist"], "unknown"),
    ],
)
def test_a_mistake_gets_a_sentence_and_no_stack_trace(words: list[str], expected: str, tmp_path: Path) -> None:
    said = btfl(*words, folder=tmp_path, ok=False)
    assert expected in " ".join(said.split())
    assert not list(tmp_path.rglob("*.parquet"))


def test_help_teaches() -> None:
    for command in ([], ["demo"], ["bench"], ["methods"], ["data"], ["data", "get"]):
        said = btfl(*command, "--help", folder=ROOT)
        assert "Usage" in said
    assert "Example" in btfl("bench", "--help", folder=ROOT)
    assert "btfl 0." in btfl("--version", folder=ROOT)


def test_methods_are_listed_with_paper_recipe_and_settings() -> None:
    said = btfl("methods", folder=ROOT)
    for words in ("Zhou and Liu, KDD 2025", "preset = release", "trains: fedavg", "sees: images"):
        assert words in said
