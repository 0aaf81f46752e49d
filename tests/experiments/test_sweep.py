"""Several experiments from one, each the same as if it were asked for alone; and lists that cannot be are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl.benchmark.many import check_sweep, default_folder
from btfl.benchmark.record import run_id
from btfl.errors import InputError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.gather import gather
from btfl.experiments.sweep import make_sweep
from btfl.methods.registry import METHODS, every_method

SMALL = {"name": "small", "model": "mlp", "methods": ("fedavg", "btfl")}


@given(
    st.lists(st.integers(0, 10**6), min_size=2, max_size=4, unique=True),
    st.lists(st.floats(0.01, 100), min_size=2, max_size=3, unique=True),
)
def test_every_point_is_the_experiment_that_is_asked_for_alone(seeds: list[int], alphas: list[float]) -> None:
    sweep = make_sweep({**SMALL, "seed": seeds, "alpha": alphas})
    alone = [make_experiment({**SMALL, "seed": seed, "alpha": alpha}) for alpha in alphas for seed in seeds]
    assert list(sweep.experiments) == alone
    assert [run_id(one) for one in sweep.experiments] == [run_id(one) for one in alone]
    assert len(set(sweep.folders(Path("out")))) == len(alone)
    assert sweep.axes == ("alpha", "seed")


def test_settings_of_training_vary_too_and_one_value_is_no_sweep() -> None:
    sweep = make_sweep({**SMALL, "training": {"rounds": [2, 5], "batch": 16}})
    assert [one.training for one in sweep.experiments] == [{"rounds": 2, "batch": 16}, {"rounds": 5, "batch": 16}]
    assert sweep.names == ("rounds-2", "rounds-5")
    assert default_folder(sweep) == Path("runs/small-sweep")
    single = make_sweep({**SMALL, "seed": [3]})
    assert single.alone
    assert single.experiments == (make_experiment({**SMALL, "seed": 3}),)
    assert single.folders(Path("out")) == [Path("out")]
    assert default_folder(single) == Path("runs/small")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"seed": []}, "seed: name at least one value"),
        ({"seed": [0, 0]}, "seed: 0, 0 has a value twice"),
        ({"seed": [0, "x"]}, "seed must be a whole number of at least 0, not 'x'"),
        ({"seed": [0, -1]}, "seed must be a whole number of at least 0, not -1"),
        ({"alpha": [0.1, 0]}, "alpha must be a number above 0, not 0"),
        ({"training": {"rounds": [1, True]}}, "training: rounds must be a whole number .* not True"),
        ({"model": ["mlp", "cnn"]}, "model"),
    ],
)
def test_lists_that_cannot_be_are_refused_before_any_work(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_sweep({**SMALL, **values})


def test_what_is_trained_cannot_vary_with_weights_that_are_there(tmp_path: Path) -> None:
    seeds, draws = (make_sweep({**SMALL, name: [0, 1]}) for name in ("seed", "draw"))
    with pytest.raises(InputError, match=r"one training: seed cannot take several values with them\. draw, severity"):
        check_sweep(seeds, tmp_path, start="zoo:one")
    check_sweep(draws, tmp_path, start="zoo:one")


def test_a_reference_is_one_of_the_methods_and_a_column_one_there_is(tmp_path: Path) -> None:
    sweep = make_sweep(SMALL)
    check_sweep(sweep, tmp_path, reference="BTFL")
    with pytest.raises(InputError, match=r"'coherent' is not among the methods that are compared \(fedavg, btfl\)"):
        check_sweep(sweep, tmp_path, reference="coherent")
    with pytest.raises(UnknownNameError, match=r"unknown column 'fair'\. Did you mean fairness"):
        check_sweep(sweep, tmp_path, columns=("fair",))


def test_several_runs_do_not_go_into_a_single_one(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="is a single run: name another folder"):
        check_sweep(make_sweep({**SMALL, "seed": [0, 1]}), tmp_path)


def test_all_is_every_method_without_gradient_steps_and_names_are_added_to_it() -> None:
    named = gather({"methods": ["all", "memo", "btfl"]})["methods"]
    left_out = set(METHODS) - set(named)
    assert {"tent", "ttt", "ttt-release", "fedthe-plus"} <= left_out
    assert all(METHODS[name].method.gradients for name in left_out)
    assert [name for name in named if METHODS[name].method.gradients] == ["memo"]
    assert len(named) == len(set(named))
    assert set(every_method(["fedavg"])) < set(every_method())
    of_balanced = gather({"methods": "all"}, recipes=("balanced",))["methods"]
    assert {METHODS[name].trained_with for name in of_balanced} == {"balanced"}
    assert "fedthe" in of_balanced


def test_single_settings_change_a_table_and_leave_the_rest() -> None:
    values = gather("demo", {"training.batch": 16, "seed": [0, 1]})
    assert values["training"] == {"rounds": 20, "batch": 16}
    assert values["name"] == "demo"
    with pytest.raises(InputError, match=r"seed is a single setting: there is no seed\.x"):
        gather({"seed": 1}, {"seed.x": 2})
