"""The log of a run: whole lines of JSON, whatever happened to the run, and scalars that TensorBoard reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from btfl.core.client import ClientOutcome, Weights
from btfl.core.summary import Summary
from btfl.data.federated import ClientData
from btfl.engines import LocalEngine, train_federation
from btfl.engines.log import TensorBoardReport
from btfl.errors import InputError, TooFewClientsError
from btfl.recipes.base import Update
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.settings import TrainingSettings
from btfl.runs.trained import TrainedFederation
from small import digits

SETTINGS = TrainingSettings.for_model("mlp", rounds=3, local_epochs=1)


class Faulty(FedAvg):
    """FedAvg with clients that fail in given rounds, and at the end (round 0)."""

    def __init__(self, *fails: tuple[int, int]) -> None:
        super().__init__(SETTINGS, (8, 8, 1), 10)
        self.fails = fails

    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        self._perhaps_fail(round_, data)
        return super().train(round_, shared, private, data)

    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        self._perhaps_fail(0, data)
        return super().conclude(shared, private, data, everyone)

    def _perhaps_fail(self, round_: int, data: ClientData) -> None:
        if (round_, data.client) in self.fails:
            raise InputError("it is away")


def train(folder: Path, *fails: tuple[int, int], **options: Any) -> TrainedFederation:
    return train_federation(Faulty(*fails), digits(), LocalEngine(), folder=folder, **options)


def stop_in_round_3(folder: Path, **options: Any) -> None:
    with pytest.raises(TooFewClientsError):
        train(folder, *((3, client) for client in range(4)), **options)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_is_told_from_start_to_end(tmp_path: Path) -> None:
    federation = train(tmp_path)
    start, *rounds, end = lines(tmp_path)
    assert {"event": "start", "recipe": "fedavg", "round": 0, "rounds": 3, "clients": 4}.items() <= start.items()
    assert [(line["event"], line["round"], line["rounds"], line["clients"]) for line in rounds] == [
        ("round", number, 3, 4) for number in (1, 2, 3)
    ]
    history = json.loads((tmp_path / "checkpoints" / "round-000003" / "checkpoint.json").read_text())["fields"][
        "history"
    ]
    assert [(line["loss"], line["accuracy"]) for line in rounds] == [(row["loss"], row["accuracy"]) for row in history]
    assert all(line["seconds"] > 0 for line in rounds)
    assert {"event": "end", "complete": True, "digest": federation.digest()}.items() <= end.items()
    times = [pd.Timestamp(line["time"]) for line in lines(tmp_path)]
    assert times == sorted(times)
    assert all(time.tzinfo is not None for time in times)


def test_a_finished_run_adds_nothing(tmp_path: Path) -> None:
    train(tmp_path)
    before = lines(tmp_path)
    train(tmp_path)
    assert lines(tmp_path) == before


def test_times_are_in_the_log_and_nowhere_else(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train(tmp_path / name)
    one, two = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    assert one.keys() == two.keys()
    assert [str(path) for path in one if one[path] != two[path]] == ["log.jsonl"]


def test_who_is_left_out_is_named_and_not_counted(tmp_path: Path) -> None:
    train(tmp_path, (2, 1), (2, 3))
    warnings = [line for line in lines(tmp_path) if line["event"] == "warning"]
    assert [(line["stage"], line["round"], line["client"]) for line in warnings] == [("train", 2, 1), ("train", 2, 3)]
    assert all("it is away" in line["message"] for line in warnings)
    assert [line["clients"] for line in lines(tmp_path) if line["event"] == "round"] == [4, 2, 4]


def test_an_incomplete_end_is_told_and_the_complete_one_later(tmp_path: Path) -> None:
    train(tmp_path, (0, 2))
    assert {"event": "end", "complete": False, "digest": None}.items() <= lines(tmp_path)[-1].items()
    federation = train(tmp_path)
    resume, end = lines(tmp_path)[-2:]
    assert {"event": "resume", "round": 3}.items() <= resume.items()
    assert {"event": "end", "complete": True, "digest": federation.digest()}.items() <= end.items()


@pytest.mark.parametrize("torn", ['{"event": "rou', '{"event": "round"}', "\x00\x00"])
def test_a_line_torn_by_a_kill_is_cut_off(torn: str, tmp_path: Path) -> None:
    stop_in_round_3(tmp_path)
    before = lines(tmp_path)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write(torn)
    train(tmp_path)
    assert lines(tmp_path)[: len(before)] == before
    assert [line["event"] for line in lines(tmp_path)[len(before) :]] == ["resume", "round", "end"]


def damage_last_checkpoint(folder: Path) -> None:
    shutil.rmtree(folder / "final", ignore_errors=True)
    (folder / sorted((folder / "checkpoints").iterdir())[-1] / "checkpoint.json").write_text("{")


def test_a_round_done_again_stands_there_again_and_the_last_counts(tmp_path: Path) -> None:
    train(tmp_path)
    damage_last_checkpoint(tmp_path)
    train(tmp_path)
    assert [line["round"] for line in lines(tmp_path) if line["event"] == "round"] == [1, 2, 3, 3]
    [warning] = [line for line in lines(tmp_path) if line["event"] == "warning"]
    assert warning["client"] is None
    assert "checkpoint of round 3 cannot be used" in warning["message"]
    log = pd.read_json(tmp_path / "log.jsonl", lines=True)  # as docs/training.md reads it
    rounds = log[log["event"] == "round"].drop_duplicates("round", keep="last").set_index("round")
    assert list(rounds.index) == [1, 2, 3]
    assert rounds["loss"].notna().all()


# protobuf and tensorboard have deprecations of their own
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_each_round_once_even_if_it_was_done_again(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with TensorBoardReport(tmp_path) as board:
        train(tmp_path, report=board)
    damage_last_checkpoint(tmp_path)
    with TensorBoardReport(tmp_path) as board:
        train(tmp_path, report=board)
    found = reading.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert {"train/loss", "train/accuracy", "train/seconds"} <= set(found.Tags()["scalars"])
    logged = {line["round"]: line["loss"] for line in lines(tmp_path) if line["event"] == "round"}
    read = [(scalar.step, scalar.value) for scalar in found.Scalars("train/loss")]
    assert read == [(round_, pytest.approx(loss, rel=1e-6)) for round_, loss in logged.items()]
