"""Several seeds and settings in one command, and what is wrong with them in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from btfl.cli.collect import collect_sweep
from btfl.cli.several import SeveralFloats, SeveralInts
from drawn_runs import make_run

Said = Callable[..., str]
SMALL = ["--dataset", "digits", "--model", "mlp", "--clients", "3", "--samples", "300", "--rounds", "1", "-w", "1"]


def test_seeds_and_another_setting_make_a_run_each_and_one_page(tmp_path: Path, btfl: Said) -> None:
    few = ["--method", "fedavg", "--method", "personal", "--seed", "0,1", "--test-batch", "8,64", "--name", "small"]
    said = btfl("bench", *SMALL, *few, "--reference", "personal", "--columns", "fairness,ece")
    out = tmp_path / "runs" / "small-sweep"
    names = {f"test-batch-{batch}-seed-{seed}" for batch in (8, 64) for seed in (0, 1)}
    assert {path.parent.name for path in out.glob("*/run.json")} == names
    assert "run 4 of 4: runs/small-sweep/test-batch-64-seed-1" in said
    assert "Average accuracy in % by test batch" in said
    assert "Personal head minus each method" in said
    assert "worst" in said
    assert "over clients and seeds)." in said
    assert (out / "report.html").exists()
    rows = pd.read_parquet(out / "test-batch-8-seed-1" / "results.parquet")
    assert set(rows["seed"]) == {1}
    again = btfl("report", str(out), "--apart", "--columns", "calibration", "--out", "page")
    assert "log" in again
    assert "not a finished run" in btfl("report", str(tmp_path), ok=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seed", "0,x"], "Invalid value for '--seed': 'x' is not a valid integer"),
        (["--seed", "0,0"], "Invalid value for '--seed': '0,0' has 0 twice; name each value once"),
        (["--seed", "0,-1"], "-1 is not in the range x>=0"),
        (["--seed", "0,"], "'' is not a valid integer"),
        (["--alpha", "0.1,much"], "'much' is not a valid float"),
        (["--alpha", "0.5,0.50"], "'0.5,0.50' has 0.5 twice"),
        (["--method", "fedavg", "--reference", "btfl"], "the reference 'btfl' is not among the methods"),
        (["--method", "fedavgg"], "unknown method 'fedavgg'. Did you mean fedavg"),
        (["--columns", "fairness,speed"], "unknown column 'speed'"),
        (["--set", "training.batch=[16, 16]"], "training.batch: 16, 16 has a value twice"),
        (["--set", "training.batch=[16, 'x']"], "batch must be a whole number"),
    ],
)
def test_mistakes_are_one_sentence_before_any_work(words: list[str], sentence: str, tmp_path: Path, btfl: Said) -> None:
    said = " ".join(btfl("bench", "demo", *words, ok=False).replace("│", " ").split())
    assert sentence in said
    assert not (tmp_path / "runs").exists()


def test_trained_weights_take_no_other_seeds_but_other_draws(tmp_path: Path, btfl: Said) -> None:
    make_run(tmp_path / "got", methods=("fedavg",), length=8)
    said = btfl("bench", "--from", "got", "--seed", "0,1", ok=False)
    assert "the weights of got are of one training: seed cannot take several values with them" in said
    sweep = collect_sweep({"experiment": "demo", "draw": (0, 1)})
    assert sweep.names == ("draw-0", "draw-1")


def test_other_commands_take_one_number(btfl: Said) -> None:
    assert "'0,1' is not a valid integer" in btfl("train", "demo", "--seed", "0,1", ok=False)


def test_numbers_stay_numbers_and_several_are_a_tuple() -> None:
    assert SeveralInts(min=0).convert("3", None, None) == 3
    assert SeveralInts(min=0).convert("3, 4", None, None) == (3, 4)
    assert SeveralFloats(min=0).convert("0.5", None, None) == 0.5
    assert SeveralFloats(min=0).convert("0.5,1", None, None) == (0.5, 1.0)
