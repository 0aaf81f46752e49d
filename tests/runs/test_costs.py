"""What a run cost: bytes and seconds of its rounds from the logs, and times of its methods."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from btfl.benchmark.run import run_bench
from btfl.errors import StorageError
from btfl.experiments.experiment import make_experiment
from btfl.report.groups import group_runs, load_runs
from btfl.report.tables import accuracy_table
from btfl.runs.costs import Times, training_cost
from btfl.runs.layout import RunFiles
from btfl.runs.trained import TrainedFederation

SMALL = {
    "name": "small", "dataset": "digits", "shift": "none", "model": "mlp", "clients": 3, "samples": 400, "alpha": 0.5,
    "longest_stream": 8, "training": {"rounds": 2, "local_epochs": 1, "adaptation_rounds": 1},
    "methods": ("fedavg", "atp", "btfl"),
}  # fmt: skip


def write_log(folder: Path, recipe: str, *lines: dict[str, Any]) -> None:
    path = RunFiles(folder).training(recipe).log
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def a_round(number: int, seconds: float = 2.0) -> dict[str, Any]:
    return {"event": "round", "round": number, "seconds": seconds, "bytes_up": 10, "bytes_down": 20}


END = {"event": "end", "round": 3}


def test_rounds_are_added_up_and_one_that_was_repeated_counts_once(tmp_path: Path) -> None:
    write_log(tmp_path, "fedavg", {"event": "start"}, a_round(1), a_round(2, 9.0), a_round(2), a_round(3), END)
    cost = training_cost(tmp_path, "fedavg")
    assert (cost.seconds, cost.bytes_up, cost.bytes_down) == (6.0, 30.0, 60.0)


def test_rounds_of_another_recipe_cost_what_they_cost_there(tmp_path: Path) -> None:
    write_log(tmp_path, "fedavg", a_round(1), a_round(2), {"event": "end", "round": 2})
    write_log(tmp_path, "atp", {"event": "taken", "recipe": "fedavg", "rounds": 2}, a_round(3, 5.0), END)
    assert training_cost(tmp_path, "atp").seconds == 9.0


@pytest.mark.parametrize("lines", [[], [END], [a_round(2), a_round(3), END], [a_round(1)]])
def test_what_was_not_all_measured_here_is_not_known(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    assert math.isnan(training_cost(tmp_path, "fedavg").seconds)
    write_log(tmp_path, "fedavg", *lines)
    assert math.isnan(training_cost(tmp_path, "fedavg").seconds)


def test_a_log_of_an_older_btfl_has_seconds_and_no_bytes(tmp_path: Path) -> None:
    write_log(tmp_path, "fedavg", {"event": "round", "round": 1, "seconds": 3.0}, {"event": "end", "round": 1})
    cost = training_cost(tmp_path, "fedavg")
    assert cost.seconds == 3.0
    assert math.isnan(cost.bytes_up)


@pytest.mark.parametrize(
    "text",
    [
        b"no json\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b"[" * 5000,
        b'{"event": "round"}\n{"event": "end", "round": "3"}\n',
        b'{"event": "round", "round": null}\n',
        b'{"event": "round", "round": 1e400}\n',
        b'{"event": "round", "round": 1, "seconds": "long"}\n',
        b'{"event": "taken", "recipe": "../../x", "rounds": 1}\n',
        b'{"event": "taken", "recipe": ["fedavg"], "rounds": 1}\n',
        b'{"event": "taken", "recipe": "fedavg", "rounds": 1}\n{"event": "end", "round": 1}\n',  # from itself
    ],
)
def test_a_damaged_log_is_named(tmp_path: Path, text: bytes) -> None:
    write_log(tmp_path, "fedavg")
    RunFiles(tmp_path).training("fedavg").log.write_bytes(text)
    with pytest.raises(StorageError, match=r"log\.jsonl is (damaged|nested)"):
        training_cost(tmp_path, "fedavg")


def test_a_log_of_an_end_beyond_all_rounds_costs_no_memory(tmp_path: Path) -> None:
    write_log(tmp_path, "fedavg", a_round(1), {"event": "end", "round": 10**18})
    assert math.isnan(training_cost(tmp_path, "fedavg").seconds)


def test_a_benchmark_leaves_its_costs_and_the_report_shows_them(tmp_path: Path) -> None:
    run_bench(make_experiment(SMALL), tmp_path)
    shared = TrainedFederation.load(RunFiles(tmp_path).training("fedavg").final.folder).shared
    model = sum(array.nbytes for array in shared.values())
    fedavg, atp = training_cost(tmp_path, "fedavg"), training_cost(tmp_path, "atp")
    assert fedavg.bytes_up == fedavg.bytes_down == 2 * 3 * model
    rates = 4 * 5  # a number for each tensor, which the first round of rates does not receive
    assert atp.bytes_up == 3 * 3 * model + 3 * rates
    assert atp.bytes_down == 3 * 3 * model
    assert atp.seconds > fedavg.seconds > 0
    times = Times.of_run(tmp_path)
    assert times.microseconds("btfl") > 0
    assert math.isnan(times.microseconds("memo"))
    table = accuracy_table(group_runs(load_runs([tmp_path]), extras=("cost",))[0])
    assert table.headings[-4:] == ("MB up", "MB down", "training s", "µs/sample")
    by_name = {row.method: [float(cell.value) for cell in row.cells[-4:]] for row in table.rows}
    assert by_name["btfl"][:2] == pytest.approx([2 * model / 1e6] * 2)
    assert by_name["btfl"][:3] == by_name["fedavg"][:3]
    assert by_name["atp"] == pytest.approx(
        [atp.bytes_up / 3e6, atp.bytes_down / 3e6, atp.seconds, times.microseconds("atp")]
    )
    assert not any(cell.mark for row in table.rows for cell in row.cells[-4:])
    before = dict(times.of_method)
    run_bench(make_experiment({**SMALL, "methods": ("personal",)}), tmp_path)
    after = Times.of_run(tmp_path).of_method
    assert set(after) == {"fedavg", "atp", "btfl", "personal"}
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("content", [[1], {"btfl": 3}, {"btfl": {"seconds": -1.0, "samples": 3}}])
def test_damaged_times_are_named(tmp_path: Path, content: object) -> None:
    RunFiles(tmp_path).times.write_text(json.dumps(content))
    with pytest.raises(StorageError, match="damaged"):
        Times.of_run(tmp_path)
