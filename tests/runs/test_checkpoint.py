"""The record of a training has a kind and a version, and a folder that an older btfl left is resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.errors import StorageError
from btfl.runs.checkpoint import RunFolder, TrainingState
from btfl.storage import read_json, save_record, write_json

SPEC: dict[str, Any] = {"recipe": "fedavg", "settings": {"rounds": 3}, "clients": 2}


def state(round_: int) -> TrainingState:
    return TrainingState(round_, {"w": np.full(2, float(round_), np.float32)}, {}, ({"loss": 1.0},) * round_)


def test_the_record_names_its_kind_and_version(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.spec() is None
    run.begin(SPEC)
    record = read_json(tmp_path / "training.json")
    assert (record["kind"], record["version"], record["spec"]) == ("btfl training", 1, SPEC)
    assert RunFolder(tmp_path).spec() == SPEC
    assert not (tmp_path / "run.json").exists()


def test_a_folder_of_btfl_0_1_0_is_resumed(tmp_path: Path) -> None:
    before = RunFolder(tmp_path)
    before.save(state(2), {0: {"v": np.ones(1, np.float32)}})
    write_json(tmp_path / "run.json", SPEC)  # as it was written then
    run = RunFolder(tmp_path)
    run.begin(SPEC)
    assert not (tmp_path / "training.json").exists()
    found = run.load()
    assert found is not None
    assert found.round == 2
    assert found.private[0]["v"].tolist() == [1.0]
    with pytest.raises(StorageError, match=r"holds another run; it differs in settings.rounds \(3 there, 9 asked for"):
        run.check({**SPEC, "settings": {"rounds": 9}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 9}, "format version 9"),
        ({"kind": "btfl run"}, "not a btfl training"),
        ({"spec": None}, "lacks spec"),
    ],
)
def test_a_record_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    RunFolder(tmp_path).begin(SPEC)
    record = {**read_json(tmp_path / "training.json"), **change}
    (tmp_path / "training.json").write_text(json.dumps({k: v for k, v in record.items() if v is not None}))
    with pytest.raises(StorageError, match=said):
        RunFolder(tmp_path).check(SPEC)


def one(value: float) -> dict[str, np.ndarray]:
    return {"v": np.full(1, value, np.float32)}


def test_private_states_are_bound_to_client_and_round(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save(state(1), {0: one(0.0), 1: one(1.0)})
    run.save(state(2), {0: one(2.0), 1: one(3.0)})
    shutil.rmtree(run.files.private(0, 2))
    shutil.copytree(run.files.private(1, 2), run.files.private(0, 2))
    with pytest.raises(StorageError, match="private state of client 1 after round 2, not of client 0 after round 2"):
        run.load_private(0, 2)
    found = RunFolder(tmp_path).load()
    assert found is not None
    assert found.round == 1


def test_a_private_state_of_btfl_0_1_0_says_not_whose_it_is_and_loads(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    save_record(run.files.private(0, 2), "private", "btfl private state", 1, {}, one(5.0))
    assert run.load_private(0, 2)["v"].tolist() == [5.0]


def test_a_checkpoint_in_the_folder_of_another_round_is_refused(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save(state(3), {})
    run.files.checkpoint(3).rename(run.files.checkpoint(9))
    with pytest.raises(StorageError, match="no checkpoint in"):
        run.load()


@pytest.mark.parametrize("left", ["nothing", "tensors", "empty", "half", "file"])
def test_a_first_checkpoint_that_was_never_completed_does_not_stop_the_run(tmp_path: Path, left: str) -> None:
    run = RunFolder(tmp_path)
    run.save(state(1), {0: one(1.0)})
    record = run.files.checkpoint_record(1)
    if left == "nothing":
        shutil.rmtree(run.files.checkpoint(1))
        run.files.checkpoint(1).mkdir()
    elif left == "tensors":
        record.unlink()
    elif left == "file":
        shutil.rmtree(run.files.checkpoint(1))
        run.files.checkpoint(1).touch()
    else:
        record.write_bytes(record.read_bytes()[: 0 if left == "empty" else 50])
    (record.parent if record.parent.is_dir() else tmp_path).joinpath(".checkpoint.json.abcd1234.tmp").touch()
    again = RunFolder(tmp_path)
    with again.lock():
        assert again.load() is None
        again.save(state(1), {0: one(1.0)})
        found = RunFolder(tmp_path).load()
        assert found is not None
        assert found.round == 1
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (tmp_path / "lock.json").exists()


def test_damaged_checkpoints_of_later_rounds_do_not_stop_a_run_that_fell_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for round_ in (3, 4, 5):
        run.save(state(round_), {0: one(round_)})
    run.files.checkpoint_record(5).write_text("{")
    again = RunFolder(tmp_path)
    with again.lock():
        found = again.load()
        assert found is not None
        assert found.round == 4
        again.save(state(5), {0: one(5)})
    assert again.files.rounds() == [5, 4]
    assert {path.name[-1] for path in again.files.all_private()} == {"4", "5"}


HOLDER = """
import sys, time
from btfl.runs.checkpoint import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_the_second_is_told_who_holds_the_folder_and_goes_on_when_the_first_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(StorageError, match=rf"at work in .*: process {first.pid} on '.+', since 2"):
            RunFolder(tmp_path).lock().__enter__()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    with RunFolder(tmp_path).lock():
        assert json.loads((tmp_path / "lock.json").read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_folder_in_which_nothing_was_written_is_removed_again(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "b").lock():
        pass
    assert not list(tmp_path.iterdir())


def test_a_disk_that_cannot_be_read_for_a_moment_costs_no_checkpoint_and_no_private_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reading = RunFolder(tmp_path), os.open
    run.save(state(1), {0: one(0.0), 1: one(1.0)})

    def unreadable(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if str(path).endswith("checkpoint.json"):
            raise OSError(5, "Input/output error")
        return reading(path, flags, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", unreadable)
        run.save(state(2), {1: one(2.0)})
    assert run.files.rounds() == [2, 1]
    older = RunFolder(tmp_path)
    shutil.move(older.files.checkpoint(2), tmp_path / "aside")
    before = older.load()
    assert before is not None
    assert [before.private[client]["v"].tolist() for client in (0, 1)] == [[0.0], [1.0]]
    shutil.move(tmp_path / "aside", older.files.checkpoint(2))
    found = RunFolder(tmp_path).load()
    assert found is not None
    assert found.round == 2
    assert [found.private[client]["v"].tolist() for client in (0, 1)] == [[0.0], [2.0]]
