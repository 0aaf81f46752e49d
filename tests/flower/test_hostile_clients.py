"""Hostile clients over Flower's messages, and nodes that claim another's number."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from btfl.core.calibration import SHAPES
from btfl.engines import Event, FaultSettings, train_federation
from btfl.errors import StorageError, TooFewClientsError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.flower.client_app import make_client_app
from btfl.flower.messages import TYPES, pack_result, unpack_result
from btfl.flower.server_app import serve
from btfl.flower.session import GridEngine, GridSession, read_bindings
from btfl.flower.task import FlowerTask
from btfl.runs.layout import TrainingFiles
from btfl.runs.trained import TrainedFederation
from btfl.storage import write_json
from hostile import CALIBRATIONS, HOSTILE, Hostile, LyingEngine, digests
from in_process_grid import Answer, InProcessGrid
from variants import one_in

FAULTS = FaultSettings(time_limit=2.0, min_share=0.4)
DETECTABLE = [name for name, liar in HOSTILE.items() if liar.detectable]


def experiment(clients: int) -> Experiment:
    return make_experiment(
        {"dataset": "digits", "shift": "none", "clients": clients, "alpha": 1.0, "model": "mlp", "seed": 3}
        | {"training": {"rounds": 1, "local_epochs": 1, "finetune_epochs": 0}}
    )


def task(folder: Path, clients: int = 4, faults: FaultSettings = FAULTS) -> FlowerTask:
    return FlowerTask.of(experiment(clients), "fedavg", folder / "flower", faults)


def over_messages(liar: Hostile) -> Answer:
    def answer(question: Message, reply: Message) -> Message:
        true = unpack_result(liar.task, reply.content)
        return Message(pack_result(liar.lie(true)), reply_to=question)

    return answer


@cache
def without(tasks: tuple[tuple[int, str], ...], clients: int) -> list[str | None]:
    absent = {client: Hostile(name, lambda result: result) for client, name in tasks}
    return digests(train_federation(*task(Path(), clients).make(), LyingEngine(absent, absent=True), faults=FAULTS))


def check(liars: dict[int, Hostile], folder: Path, clients: int) -> TrainedFederation:
    """Who lies is as one who is away, and is told; return what was trained."""
    grid, events = InProcessGrid(make_client_app(task(folder, clients)), range(clients)), list[Event]()
    for client, liar in liars.items():
        grid.script[TYPES[liar.task], "1", client] = over_messages(liar)
    engine = GridEngine(grid, FAULTS, folder / "flower" / "clients")
    recipe, data = task(folder, clients).make()
    found = train_federation(recipe, data, engine, folder=folder / "run", report=events.append, faults=FAULTS)
    expected = without(tuple((client, liar.task) for client, liar in liars.items()), clients)
    for client, (one, other) in enumerate(zip(digests(found), expected, strict=True)):
        assert client in liars or one == other
    told = [event for event in events if event.warning]
    assert {event.client for event in told} == set(liars)
    assert all(len(event.warning) < 2000 and event.warning.isprintable() for event in told)
    assert json.loads((folder / "run" / "log.jsonl").read_text().splitlines()[-1])["event"] == "end"
    return found


@pytest.mark.parametrize("name", one_in(4, DETECTABLE))
def test_a_liar_is_as_one_who_is_away(name: str, tmp_path: Path) -> None:
    check({2: HOSTILE[name]}, tmp_path, 4)


@pytest.mark.parametrize("start", one_in(3, range(3)))
def test_five_liars_of_ten_are_as_five_who_are_away(start: int, tmp_path: Path) -> None:
    names = DETECTABLE[start::6][:5]
    check({2 * place: HOSTILE[name] for place, name in enumerate(names)}, tmp_path, 10)


@cache
def calibrated_without(*absent: int) -> dict[str, np.ndarray]:
    """Everyone's sums if these clients have no part in the calibration."""
    away = {client: Hostile("calibrate", lambda result: result) for client in absent}
    engine = LyingEngine(away, absent=True)
    total = train_federation(*task(Path()).make(), engine, faults=FAULTS).total
    assert total is not None
    return total.to_arrays()


@pytest.mark.parametrize("name", one_in(4, CALIBRATIONS))
def test_a_liar_has_no_part_in_the_calibration(name: str, tmp_path: Path) -> None:
    found = check({2: CALIBRATIONS[name]}, tmp_path, 4)
    assert found.total is not None
    sums, without_liar = found.total.to_arrays(), calibrated_without(2)
    assert all(np.array_equal(array, without_liar[key]) for key, array in sums.items())
    assert sums["calibration_samples"] < calibrated_without()["calibration_samples"]
    for outcome in found.outcomes:  # the liar's own, too
        assert outcome is not None
        assert all(np.array_equal(outcome.bundle.statistics[key], without_liar[key]) for key in SHAPES)


@pytest.mark.parametrize("bound", one_in(2, [True, False]))
def test_a_bound_client_is_one_node_for_the_whole_run(
    bound: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults = FaultSettings(time_limit=2.0, min_share=0.4, bind_nodes=bound)
    grid, events = InProcessGrid(make_client_app(task(tmp_path, 4, faults)), range(4)), list[Event]()

    def replaced(question: Message, reply: Message) -> Message:
        del grid.contexts[100]
        grid.connect(0, 55)  # another node, with another key
        return reply

    grid.script["train", "1", 3] = replaced
    recipe, data = task(tmp_path, 4, faults).make()
    engine = GridEngine(grid, faults, tmp_path / "flower" / "clients")
    train_federation(recipe, data, engine, report=events.append, faults=faults)
    assert "node 55 says it is client 0, as node 100 does or did" in caplog.text
    warnings = [event.warning for event in events if event.warning]
    assert warnings == (["client 0 is left out: it is not connected"] if bound else [])
    assert ("refused for this run" in caplog.text) == bound


def serve_twice(folder: Path, second: Callable[[InProcessGrid], None], bound: bool) -> list[str]:
    """Serve a run that stops for want of clients, then again with another grid; return its warnings."""
    faults = FaultSettings(time_limit=1.0, min_share=1.0, bind_nodes=bound)
    one = FlowerTask.of(experiment(4), "fedavg", folder / "flower", faults)
    grid = InProcessGrid(make_client_app(one), range(4))
    grid.script["train", "1", 3] = lambda question, reply: None
    with pytest.raises(TooFewClientsError):
        serve(grid, one)
    again = InProcessGrid(make_client_app(one), range(4))
    second(again)
    events: list[Event] = []
    lenient = replace(faults, min_share=0.4)
    recipe, data = one.make()
    engine = GridEngine(again, lenient, bindings=TrainingFiles(Path(one.folder)).nodes)
    train_federation(recipe, data, engine, folder=one.folder, report=events.append, faults=lenient)
    return [event.warning for event in events if event.warning]


@pytest.mark.parametrize("bound", one_in(2, [True, False]))
def test_a_bound_client_stays_one_node_when_the_server_is_started_again(bound: bool, tmp_path: Path) -> None:
    def thief(grid: InProcessGrid) -> None:
        del grid.contexts[100]
        grid.connect(0, 55)

    warnings = serve_twice(tmp_path, thief, bound)
    assert set(warnings) == ({"client 0 is left out: it is not connected"} if bound else set())
    assert (tmp_path / "flower" / "nodes.json").exists() == bound


def test_the_same_nodes_go_on_when_the_server_is_started_again(tmp_path: Path) -> None:
    assert serve_twice(tmp_path, lambda grid: None, bound=True) == []
    assert read_bindings(tmp_path / "flower" / "nodes.json") == {client: 100 + client for client in range(4)}


def test_which_node_is_which_client_can_be_written_down_before(tmp_path: Path) -> None:
    """Then no node can claim a number first that is another's."""
    path = tmp_path / "nodes.json"
    write_json(path, {"kind": "btfl nodes", "version": 1, "nodes": {"0": 77}})
    faults = FaultSettings(time_limit=1.0, min_share=0.4, bind_nodes=True)
    grid, events = InProcessGrid(make_client_app(task(tmp_path, 4, faults)), range(4)), list[Event]()
    recipe, data = task(tmp_path, 4, faults).make()
    train_federation(recipe, data, GridEngine(grid, faults, bindings=path), report=events.append, faults=faults)
    assert {event.warning for event in events if event.warning} == {"client 0 is left out: it is not connected"}
    assert read_bindings(path) == {0: 77, 1: 101, 2: 102, 3: 103}


@pytest.mark.parametrize("claim", [1, 10**12, 10**18, -1, True, 0.5, "1", b"1", [1, 2]])
def test_no_claim_of_a_node_spoils_what_is_kept_of_the_others(claim: Any, tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    write_json(path, {"kind": "btfl nodes", "version": 1, "nodes": {"0": 100}})
    faults = FaultSettings(time_limit=0.2, min_share=0.4, bind_nodes=True)
    grid = InProcessGrid(make_client_app(task(tmp_path, 4, faults)), range(4))
    facts = RecordDict({"facts": ConfigRecord({"client": claim})})
    grid.script["query.introduce", "", 0] = lambda question, reply: Message(facts, reply_to=question)
    session = GridSession(GridEngine(grid, faults, bindings=path), "run")
    assert session.locate({0, 1, 2, 3}) == {0: 100, 1: 101, 2: 102, 3: 103}
    assert read_bindings(path) == {0: 100, 1: 101, 2: 102, 3: 103}


@pytest.mark.parametrize("nodes", [[1], {"a": 1}, {"0": "1"}, {"0": True}, {"-1": 1}, {"0": 1, "1": 1}, None])
def test_bindings_that_say_nothing_are_one_sentence(nodes: object, tmp_path: Path) -> None:
    write_json(tmp_path / "nodes.json", {"kind": "btfl nodes", "version": 1, "nodes": nodes})
    with pytest.raises(StorageError, match=r"nodes\.json does not say"):
        read_bindings(tmp_path / "nodes.json")


def test_the_binding_is_part_of_the_run_config(tmp_path: Path) -> None:
    faults = FaultSettings(bind_nodes=True, most_samples=500)
    assert FlowerTask.from_run_config(task(tmp_path, 4, faults).run_config()).faults == faults


def test_what_a_client_says_is_cut_and_escaped_wherever_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loud = Hostile("train", lambda update: HOSTILE["says what it likes"].lie(update))
    grid = InProcessGrid(make_client_app(task(tmp_path)), range(4))
    for client in range(4):
        grid.script["train", "1", client] = over_messages(loud)
    recipe, data = task(tmp_path).make()
    with caplog.at_level(logging.WARNING), pytest.raises(TooFewClientsError) as error:
        train_federation(recipe, data, GridEngine(grid, FAULTS), faults=FAULTS)
    said = [str(error.value), *(record.getMessage() for record in caplog.records)]
    assert all(len(line) < 8000 and line.isprintable() for line in said)
