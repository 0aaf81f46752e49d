"""``btfl.bench``: each run of a sweep is the run alone, methods may be classes, and the name stays a function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from pandas.testing import assert_frame_equal

import btfl
from btfl.benchmark.run import run_bench
from btfl.core.heads import probabilities
from btfl.errors import BtflError, InputError
from btfl.experiments.experiment import make_experiment
from btfl.runs.trained import TrainedFederation

SMALL: dict[str, Any] = {"dataset": "digits", "model": "mlp", "clients": 3, "samples": 300, "name": "small"}
FEDAVG = Path("training") / "fedavg" / "final"


class Halfway(btfl.Method):
    """The mean of both answers."""

    def predict(self, batch: NDArray[Any]) -> NDArray[np.float64]:
        shared, own = (probabilities(head, batch) for head in (self.bundle.global_head, self.bundle.personal_head))
        return (shared + own) / 2


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api") / "sweep"


@pytest.fixture(scope="module")
def results(out: Path) -> Any:
    return btfl.bench(SMALL, seeds=[0, 1], rounds=1, methods=["fedavg", "btfl"], out=out, columns=["fairness"])


def test_a_run_of_a_sweep_is_the_run_alone(results: Any, out: Path, tmp_path: Path) -> None:
    one = make_experiment({**SMALL, "seed": 1, "training": {"rounds": 1}, "methods": ["fedavg", "btfl"]})
    alone = run_bench(one, tmp_path / "run")
    assert_frame_equal(alone.rows, pd.read_parquet(out / "seed-1" / "results.parquet"), check_dtype=False)
    digests = [TrainedFederation.load(place / FEDAVG).digest() for place in (out / "seed-1", tmp_path / "run")]
    assert digests[0] == digests[1]
    assert "worst decile" in results.table().headings
    assert results.frame["seed"].nunique() == 2
    assert not (out / "report.html").exists()
    assert results.report() == out / "report.html"


def test_a_class_is_compared_with_what_is_there_and_nothing_is_trained_again(results: Any, out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/training/**/*.safetensors")}
    assert before
    mine = btfl.bench(SMALL, seeds=(0, 1), rounds=1, methods=[Halfway, btfl.Coherent], out=out, reference=Halfway)
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/training/**/*.safetensors")} == before
    assert set(mine.frame["title"]) == {"FedAvg", "BTFL", "Halfway", "Coherent (ours)"}
    assert "coherent" in set(mine.frame["method"])
    table = mine.table("difference")
    assert table.title.startswith("Halfway minus each method")
    assert {row.cells[0].text for row in table.rows} == {"FedAvg", "BTFL", "Coherent (ours)"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"seeds": [0, 0]}, "seed: 0, 0 has a value twice"),
        ({"methods": ["fedavg", "fedavgg"]}, "unknown method 'fedavgg'. Did you mean fedavg"),
        ({"methods": [int]}, "a class that derives from btfl.Method, not <class 'int'>"),
        ({"methods": ["fedavg"], "reference": "btfl"}, "'btfl' is not among the methods that are compared"),
        ({"columns": ["fairnes"]}, "unknown column 'fairnes'. Did you mean fairness"),
        ({"colour": "red"}, "unknown setting of an experiment 'colour'"),
        ({"experiment": "demoo"}, "unknown experiment 'demoo'. Did you mean demo"),
    ],
)
def test_mistakes_are_one_sentence_before_any_work(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    experiment = settings.pop("experiment", SMALL)
    with pytest.raises(BtflError, match=sentence):
        btfl.bench(experiment, out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_a_class_inside_a_function_cannot_be_found_again(tmp_path: Path) -> None:
    class Inner(Halfway):
        pass

    with pytest.raises(InputError, match="is defined inside another one or a function"):
        btfl.bench(SMALL, methods=[Inner], out=tmp_path)


def say(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_function_stays_what_it_is_when_the_package_is_loaded() -> None:
    code = "import btfl, btfl.benchmark.run; print(callable(btfl.bench), 'bench' in dir(btfl), btfl.bench.__module__)"
    assert say(code) == "True True btfl.benchmark.api"


def test_without_the_packages_the_sentence_says_what_to_install_and_recording_works() -> None:
    code = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ("torch", "pandas", "pydantic", "matplotlib"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
import numpy as np, btfl
from btfl import *
try:
    btfl.bench
except ImportError as error:
    print(error)
likelihood = btfl.DiscretisedLikelihood.fit(np.ones((3, 4)))
watched = btfl.record(btfl.Btfl(btfl.ClientBundle(np.eye(4), np.eye(4), likelihood, likelihood, 0.5, 0.5)))
watched.predict(np.ones((2, 4)))
print(watched.trace.e.shape)
"""
    first, second = say(code).splitlines()
    assert first.startswith("btfl.bench needs the package p")
    assert first.endswith("pip install 'btfl[train]'")
    assert second == "(2,)"
