"""The command line as a person uses it: in a process of its own, with right and wrong words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

Said = Callable[..., str]
ROOT = Path(__file__).parents[2]
FAST = ["--set", "training.rounds=2", "--set", "training.local_epochs=1", "--clients", "4", "--workers", "1"]


def in_a_process(*words: str, folder: Path) -> str:
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from btfl.cli import main; main()", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_demo_ends_with_a_table_and_a_report(tmp_path: Path) -> None:
    said = in_a_process("demo", "--out", "here", folder=tmp_path)
    for words in ("FedAvg+FT", "Personal head", "BTFL", "Oracle", "mean", "printed digits"):
        assert words in said
    report = re.search(r"Report: (\S+)", said)
    assert report is not None
    assert "<table" in (tmp_path / report[1]).read_text()
    rows = pd.read_parquet(tmp_path / "here" / "results.parquet")
    five = rows[rows["stream"] != "switching"]  # which only methods with an e are run on
    wide = five.groupby(["method", "stream"])["accuracy"].mean().unstack()
    for method in ("fedavg", "personal", "btfl", "btfl-release"):  # the oracle is the ceiling in every stream
        assert (wide.loc["oracle"] >= wide.loc[method]).all()
    assert wide["original_ind"]["personal"] > wide["original_exd"]["personal"] + 0.2


def test_a_method_of_ones_own_as_the_docs_show_it(tmp_path: Path, btfl: Said) -> None:
    page = (ROOT / "docs" / "adding-a-method.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "my_method.py").write_text(code)
    said = btfl(
        "bench", "--preset", "demo", *FAST, "--method", "btfl", "--method", "my_method:Halfway",
        "--method", "my_method:Halfway[e=0.8]", )  # fmt: skip
    assert "Halfway [e=0.8]" in said
    assert "0.800" in said


def test_an_experiment_from_a_file(tmp_path: Path, btfl: Said) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ndataset = "digits"\nshift = "none"\nmodel = "mlp"\nclients = 4\nmethods = ["fedavg"]\n'
        "[training]\nrounds = 1\n"
    )
    said = btfl("bench", "mine.toml", "--workers", "1")
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
        (["train", "--preset", "demo", "--recipe", "fedavgg"], "Did you mean fedavg"),
        (["train", "--preset", "demo", "--set", "training.precision=fp16"], "unknown precision of training 'fp16'"),
        (["train", "--preset", "demo", "--set", "training.compile=1"], "compile must be true or false"),
        (["train", "--preset", "demo", "--device", "gpu"], "Did you mean cpu"),
        (["train", "--preset", "demo", "--min-share", "0"], "not in the range 0<x<=1"),
        (["bench", "--preset", "demo", "--min-share", "2"], "not in the range 0<x<=1"),
        (["train", "mine.toml", "--preset", "demo"], "a preset is a whole experiment"),
    ],
)
def test_a_mistake_gets_a_sentence_and_no_stack_trace(
    words: list[str], expected: str, tmp_path: Path, btfl: Said
) -> None:
    said = btfl(*words, ok=False)
    assert expected in " ".join(said.split())
    assert not list(tmp_path.rglob("*.parquet")) + list(tmp_path.rglob("*.jsonl"))


def test_help_teaches(btfl: Said) -> None:
    for command in ([], ["demo"], ["bench"], ["train"], ["flower", "simulate"], ["methods"], ["data"], ["data", "get"]):
        said = btfl(*command, "--help")
        assert "Usage" in said
    assert "Example" in btfl("bench", "--help")
    assert "Example" in btfl("train", "--help")
    assert "btfl 0." in btfl("--version")


def test_methods_are_listed_with_paper_recipe_and_settings(btfl: Said) -> None:
    said = btfl("methods")
    for words in ("Zhou and Liu, KDD 2025", "trains: fedavg", "sees: images"):
        assert words in said
    assert "forgetting = " in btfl("methods", "coherent")
