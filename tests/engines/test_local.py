"""Training on one machine: the same bytes however many workers, interrupted or not."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.engines import LocalEngine, local, train_federation
from btfl.engines.base import Broadcast, Failure, Job
from btfl.engines.federation import Event, participants
from btfl.errors import StorageError
from btfl.recipes import Recipe, TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.runs.checkpoint import StoredWeights
from btfl.runs.trained import TrainedFederation

SETTINGS = TrainingSettings.for_model("mlp", rounds=4, local_epochs=2)


def federation(settings: TrainingSettings = SETTINGS) -> tuple[Recipe, FederatedData]:
    source = load_source("digits", shift="none")
    partition = make_partition(source, PartitionSettings(5, alpha=0.5), 0)
    return make_recipe("fedavg", settings, source.sample_shape, len(source.classes)), FederatedData(source, partition)


def everything(folder: Path) -> dict[str, bytes]:
    """All bytes of a saved outcome."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    train_federation(*federation(), LocalEngine(1), folder=folder)
    return everything(folder / "final")


def test_two_workers_give_the_same_bytes_as_one(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    train_federation(*federation(), LocalEngine(2), folder=tmp_path)
    assert everything(tmp_path / "final") == undisturbed


def test_another_seed_gives_other_weights(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    settings = TrainingSettings.for_model("mlp", rounds=4, local_epochs=2, seed=1)
    train_federation(*federation(settings), LocalEngine(1), folder=tmp_path)
    assert everything(tmp_path / "final").keys() != undisturbed.keys()  # the names hold hashes of the content


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[3])
from test_local import federation
from btfl.engines import LocalEngine, train_federation
train_federation(*federation(), LocalEngine(int(sys.argv[2])), folder=sys.argv[1])
"""


def start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SCRIPT, str(folder), str(workers), str(Path(__file__).parent)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)


def test_killed_at_random_moments_it_ends_the_same(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(2):  # benchmarks/kill_and_resume.py does it 20 times
        process = start(tmp_path, workers=2)
        # wait until it is at work, so that the kill falls into rounds and not into imports
        deadline = time.monotonic() + 60
        while process.poll() is None and not (tmp_path / "training.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.5))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path, workers=1).wait() == 0
    assert everything(tmp_path / "final") == undisturbed


def test_a_damaged_last_checkpoint_falls_back_to_the_one_before(
    undisturbed: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_federation(*federation(), LocalEngine(1), folder=tmp_path)
    for path in (tmp_path / "final").rglob("*"):
        if path.is_file():
            path.unlink()
    last = sorted((tmp_path / "checkpoints").iterdir())[-1]
    assert last.name == "round-000004"
    (tensors,) = last.glob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        train_federation(*federation(), LocalEngine(1), folder=tmp_path)
    assert "round 4 cannot be used" in caplog.text
    assert everything(tmp_path / "final") == undisturbed


def test_only_two_checkpoints_and_their_private_states_are_kept(tmp_path: Path) -> None:
    train_federation(*federation(), LocalEngine(1), folder=tmp_path)
    assert [p.name for p in sorted((tmp_path / "checkpoints").iterdir())] == ["round-000003", "round-000004"]
    assert len(list((tmp_path / "private").iterdir())) == 2 * 5


def test_a_folder_of_another_run_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    train_federation(*federation(), LocalEngine(1), folder=tmp_path)
    other = TrainingSettings.for_model("mlp", rounds=4, local_epochs=3)
    with pytest.raises(StorageError, match=r"settings\.local_epochs \(2 there, 3 asked for\)"):
        train_federation(*federation(other), LocalEngine(1), folder=tmp_path)


def test_a_finished_run_is_loaded_and_not_done_again(tmp_path: Path) -> None:
    first = train_federation(*federation(), LocalEngine(1), folder=tmp_path)
    events: list[object] = []
    again = train_federation(*federation(), LocalEngine(1), folder=tmp_path, report=events.append)
    assert events == []
    assert {k: v.tobytes() for k, v in again.shared.items()} == {k: v.tobytes() for k, v in first.shared.items()}


def test_the_outcome_of_an_older_btfl_is_made_anew_from_its_last_round(tmp_path: Path) -> None:
    digest = train_federation(*federation(), LocalEngine(1), folder=tmp_path).digest()
    record = tmp_path / "final" / "federation.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "version": 1}))
    events: list[Event] = []
    train_federation(*federation(), LocalEngine(1), folder=tmp_path, report=events.append)
    assert {event.stage for event in events} == {"describe", "calibrate", "conclude"}
    assert TrainedFederation.load(tmp_path / "final").digest() == digest
    kept = {path.name for path in (tmp_path / "final").iterdir()}
    assert not {"client-000000", "total.json"} & kept  # of the old one nothing is left


def test_what_was_saved_can_be_loaded_elsewhere(tmp_path: Path) -> None:
    trained = train_federation(*federation(), LocalEngine(1))
    trained.save(tmp_path)
    loaded = TrainedFederation.load(tmp_path)
    client, again = trained.client(2), loaded.client(2)
    assert client.networks.keys() == again.networks.keys() == {"global", "finetuned"}
    assert client.bundle.personal_head.weight.tobytes() == again.bundle.personal_head.weight.tobytes()


def test_a_worker_killed_alone_is_replaced(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    process = start(tmp_path, workers=2)
    deadline = time.monotonic() + 60
    killed = False
    while process.poll() is None and time.monotonic() < deadline:
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        if len(children) == 2 and (tmp_path / "checkpoints").exists() and not killed:
            os.kill(int(children[0]), signal.SIGKILL)
            killed = True
        time.sleep(0.005)
    assert process.wait() == 0
    assert killed
    assert everything(tmp_path / "final") == undisturbed


def test_participants_are_a_share_drawn_anew_each_round() -> None:
    recipe, _ = federation(TrainingSettings.for_model("mlp", rounds=4, participation=0.1))
    chosen = [participants(recipe, 200, round_) for round_ in range(1, 40)]
    assert all(len(set(one)) == 20 and one == sorted(one) for one in chosen)
    assert chosen[0] != chosen[1]
    assert len({client for one in chosen for client in one}) > 190


def test_large_clients_begin_first_and_results_come_in_the_order_of_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, data = federation()
    begun: list[int] = []

    def attempt(recipe: Recipe, data: FederatedData, broadcast: Broadcast, job: Job) -> Failure:
        begun.append(job.client)
        return Failure(str(job.client))

    monkeypatch.setattr(local, "attempt", attempt)
    jobs = [Job("train", client, 1, {}) for client in range(5)]
    with LocalEngine(1).open(recipe, data) as session:
        answers = list(session.run(Broadcast({}), jobs))
    assert [(job.client, answer) for job, answer in answers] == [(i, Failure(str(i))) for i in range(5)]
    sizes = [data.size(client) for client in begun]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_state_on_disk_that_cannot_be_read_stops_the_run_and_is_no_failure_of_the_client(
    workers: int, tmp_path: Path
) -> None:
    recipe, data = federation()
    jobs = [Job("train", 0, 1, StoredWeights(tmp_path, client=0, round_=1))]
    with LocalEngine(workers).open(recipe, data) as session, pytest.raises(StorageError, match="private"):
        list(session.run(Broadcast({}), jobs))
