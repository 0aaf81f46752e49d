"""``btfl train`` as a person uses it: started, stopped, damaged, started again, and followed by the benchmark."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from btfl.cli.progress import Watcher
from btfl.core.client import Weights
from btfl.data.federated import ClientData
from btfl.engines import Event
from btfl.errors import InputError
from btfl.recipes.base import Update
from btfl.recipes.fedavg import FedAvg
from btfl.runs.checkpoint import RunFolder
from variants import one_in

Said = Callable[..., str]
WORDS = ["--preset", "demo", "--clients", "4", "--rounds", "3", "--set", "training.local_epochs=1"]
TRAIN = ["train", *WORDS, "--workers", "1", "--out", "run"]


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "run" / "training" / "fedavg" / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def digest(said: str) -> str:
    found = re.search(r"sha256 ([0-9a-f]{64})", said)
    assert found is not None, said
    return found[1]


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, int], bool]) -> None:
    """Let clients fail: (round, client) -> whether."""
    train = FedAvg.train

    def tried(self: FedAvg, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        if fails(round_, data.client):
            raise InputError("its battery is empty")
        return train(self, round_, shared, private, data)

    monkeypatch.setattr(FedAvg, "train", tried)


def test_it_says_what_came_of_it_and_the_benchmark_does_not_train_again(tmp_path: Path, btfl: Said) -> None:
    said = btfl(*TRAIN)
    assert "fedavg: 3 rounds, loss" in said
    assert "accuracy" in said
    assert str(Path("run") / "training" / "fedavg") in said
    logged = lines(tmp_path)
    assert logged[-1]["digest"] == digest(said)
    assert "is finished already" not in said
    again = btfl(*TRAIN)
    assert "fedavg is finished already" in again
    assert again[again.index("fedavg: 3 rounds") :] == said[said.index("fedavg: 3 rounds") :]
    bench = btfl("bench", *WORDS, "--workers", "1", "--out", "run", "--method", "btfl")
    assert "fedavg is finished already" in bench
    assert "BTFL" in bench
    assert lines(tmp_path) == logged


def test_what_is_refused_leaves_nothing_behind_that_stands_in_the_way(
    tmp_path: Path, btfl: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("btfl.recipes.hardware._BF16_TRIAL", "raise SystemExit(1)")
    for wrong in (["--model", "mpl"], ["--set", "training.precision=bf16"]):
        btfl(*TRAIN, *wrong, ok=False)
        assert not (tmp_path / "run").exists()
    digest(btfl(*TRAIN))


def test_several_recipes_each_in_a_folder_of_its_own(tmp_path: Path, btfl: Said) -> None:
    said = btfl(*TRAIN, "--recipe", "fedrep", "--recipe", "balanced", "--recipe", "fedrep")
    assert said.count("sha256") == 2
    assert {path.name for path in (tmp_path / "run" / "training").iterdir()} == {"fedrep", "balanced"}


def test_it_goes_on_where_it_stopped_and_ends_the_same(
    tmp_path: Path, btfl: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = digest(btfl(*TRAIN[:-1], "other"))
    with monkeypatch.context() as patch:
        failing(patch, lambda round_, client: round_ == 3 and client < 3)
        stopped = btfl(*TRAIN, ok=False)
    assert "round 3: only 1 of 4 clients" in " ".join(stopped.split())
    said = btfl(*TRAIN)
    assert "fedavg goes on after round 2 of 3" in said
    assert digest(said) == undisturbed
    assert [line["event"] for line in lines(tmp_path)] == [
        "start", "round", "round", "warning", "warning", "warning", "resume", "round", "end",
    ]  # fmt: skip


def test_a_damaged_checkpoint_is_told_and_the_one_before_taken(tmp_path: Path, btfl: Said) -> None:
    undisturbed = digest(btfl(*TRAIN))
    folder = tmp_path / "run" / "training" / "fedavg"
    shutil.rmtree(folder / "final")
    (tensors,) = (folder / "checkpoints" / "round-000003").glob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-10])
    said = btfl(*TRAIN)
    assert "warning: checkpoint of round 3 cannot be used, trying the one before" in said
    assert "fedavg goes on after round 2 of 3" in said
    assert digest(said) == undisturbed


def test_a_second_trainer_is_told_who_holds_the_folder(tmp_path: Path, btfl: Said) -> None:
    folder = tmp_path / "run" / "training" / "fedavg"
    with RunFolder(folder).lock():
        said = " ".join(btfl(*TRAIN, ok=False).split())
    assert "another process is at work in" in said
    assert f"process {os.getpid()} on" in said
    assert "Wait until it ends, or name another folder" in said
    assert not folder.exists()


@pytest.mark.parametrize("command", one_in(2, ["train", "bench"]))
def test_who_is_left_out_is_told_once_and_the_share_that_must_be_left_is_an_option(
    command: str, btfl: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda round_, client: (round_, client) == (2, 1))
    said = btfl(command, *TRAIN[1:])
    assert said.count("warning: client 1 is left out of round 2: its battery is empty") == 1
    said = btfl(command, *TRAIN[1:-1], "strict", "--min-share", "1", ok=False)
    assert "3 of 4 clients gave a usable answer, and 4 are needed" in " ".join(said.split())


def test_clients_without_a_bundle_are_an_error_that_names_them(btfl: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    conclude = FedAvg.conclude

    def tried(self: FedAvg, *given: Any) -> Any:
        if given[2].client == 2:
            raise InputError("its disk is full")
        return conclude(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(FedAvg, "conclude", tried)
        said = " ".join(btfl(*TRAIN, ok=False).split())
    assert "no bundle: 2." in said
    assert "start the run again" in said
    assert "fedavg goes on after round 3 of 3" in btfl(*TRAIN)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_cuda_is_refused_and_auto_is_the_cpu(btfl: Said) -> None:
    assert "no GPU" in btfl(*TRAIN, "--device", "cuda", ok=False)
    assert digest(btfl(*TRAIN, "--device", "auto")) == digest(btfl(*TRAIN[:-1], "other"))


def test_tensorboard_needs_a_package_and_says_which(
    tmp_path: Path, btfl: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for command in ("train", "bench"):
        assert "pip install 'btfl[tensorboard]'" in btfl(command, *TRAIN[1:], "--tensorboard", ok=False)
    assert not (tmp_path / "run").exists()


def test_the_bar_tells_round_clients_time_left_loss_and_accuracy_in_80_columns() -> None:
    terminal = io.StringIO()
    with Watcher(Console(file=terminal, width=80, force_terminal=True, color_system=None)) as watcher:
        watcher("fedavg", Event("train", 13, 130, 20, 20, {"loss": 1.25, "accuracy": 0.875}))
        watcher("fedavg", Event("train", 14, 130, 4, 20, {}))
    last = [line for line in terminal.getvalue().splitlines() if "fedavg" in line][-1]
    for words in ("fedavg round 14/130, clients 4/20", ":", "left", "loss 1.250", "acc 87.5%"):
        assert words in last


def start(folder: Path) -> subprocess.Popen[str]:
    words = ["train", "--preset", "demo", "--rounds", "500", "--workers", "2", "--out", "run"]
    command = [sys.executable, "-c", "from btfl.cli import main; main()", *words]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    wait_for(lambda: len(list(folder.rglob("checkpoint.json"))) > 0 or process.poll() is not None)
    return process


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_stopped_by_hand_it_says_how_to_go_on(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues from there" in said
    assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_workers_do_not_outlive_a_killed_run(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
        workers = [Path("/proc") / child for child in found.stdout.split()]
        assert len(workers) == 2
        process.kill()
        wait_for(lambda: not any(worker.exists() and "(python" in _state(worker) for worker in workers))


def _state(process: Path) -> str:
    """Return the process's state line; empty once it is gone, or dead and waiting to be collected."""
    try:
        state = (process / "stat").read_text()
    except OSError:
        return ""
    return "" if ") Z " in state else state
