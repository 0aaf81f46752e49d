"""Hostile clients over Flower's messages, and nodes that claim another's number."""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from flwr.app import Message

from btfl.engines import Event, FaultSettings, train_federation
from btfl.errors import TooFewClientsError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.flower.client_app import make_client_app
from btfl.flower.messages import TYPES, pack_result, unpack_result
from btfl.flower.session import GridEngine
from btfl.flower.task import FlowerTask
from hostile import HOSTILE, Hostile, LyingEngine, digests
from in_process_grid import Answer, InProcessGrid

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


def check(liars: dict[int, Hostile], folder: Path, clients: int) -> None:
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


@pytest.mark.parametrize("name", DETECTABLE)
def test_a_liar_is_as_one_who_is_away(name: str, tmp_path: Path) -> None:
    check({2: HOSTILE[name]}, tmp_path, 4)


@pytest.mark.parametrize("start", range(3))
def test_five_liars_of_ten_are_as_five_who_are_away(start: int, tmp_path: Path) -> None:
    names = DETECTABLE[start::6][:5]
    check({2 * place: HOSTILE[name] for place, name in enumerate(names)}, tmp_path, 10)


@pytest.mark.parametrize("bound", [False, True])
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
