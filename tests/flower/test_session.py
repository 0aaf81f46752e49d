"""The grid session and the client app together, over a grid in this process: clients that vanish, hang and return."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

import numpy as np
from flwr.app import Error, Message, RecordDict

from btfl.engines import Event, FaultSettings, LocalEngine, train_federation
from btfl.errors import TooFewClientsError
from btfl.experiments.experiment import make_experiment
from btfl.flower.client_app import make_client_app
from btfl.flower.inbox import ask
from btfl.flower.messages import to_record
from btfl.flower.session import GridEngine, GridSession
from btfl.flower.task import FlowerTask
from btfl.runs.trained import TrainedFederation
from in_process_grid import Answer, InProcessGrid

EXPERIMENT = make_experiment(
    {"dataset": "digits", "shift": "none", "clients": 4, "alpha": 0.3, "model": "mlp", "seed": 3}
    | {"training": {"rounds": 3, "local_epochs": 1}}
)
FAULTS = FaultSettings(time_limit=2.0)


def task(folder: Path) -> FlowerTask:
    return FlowerTask.of(EXPERIMENT, "fedavg", folder / "flower", FAULTS)


def train(
    grid: InProcessGrid, folder: Path, events: list[Event] | None = None, faults: FaultSettings = FAULTS
) -> TrainedFederation:
    recipe, data = task(folder).make()
    engine = GridEngine(grid, faults, folder / "flower" / "clients")
    report = None if events is None else events.append
    return train_federation(recipe, data, engine, folder=folder / "run", report=report, faults=faults)


@pytest.fixture(scope="module")
def undisturbed() -> str:
    return train_federation(*task(Path()).make(), LocalEngine()).digest()


def warnings(events: list[Event]) -> list[str]:
    return [event.warning for event in events if event.warning]


def test_the_same_weights_heads_and_likelihoods_as_on_the_local_engine(tmp_path: Path, undisturbed: str) -> None:
    assert train(InProcessGrid(make_client_app(task(tmp_path)), range(4)), tmp_path).digest() == undisturbed


def test_personal_heads_are_not_on_the_server(tmp_path: Path) -> None:
    grid = InProcessGrid(make_client_app(task(tmp_path)), range(4))
    answers: list[Message] = []

    def listen(question: Message, answer: Message) -> Message:
        answers.append(answer)
        return answer

    grid.script = {("train", "3", client): listen for client in range(4)}
    train(grid, tmp_path)
    assert not list((tmp_path / "run" / "private").glob("*"))
    for client, answer in enumerate(answers):
        head = grid.contexts[100 + client].state.array_records["btfl_private"]["personal_head.weight"].numpy()
        sent = [array.numpy() for record in answer.content.array_records.values() for array in record.values()]
        assert not any(array.shape == head.shape and np.array_equal(array, head) for array in sent)


def garbled(question: Message, answer: Message) -> Message:
    return Message(RecordDict({"upload": to_record({"w": np.ones(3)})}), reply_to=question)


def infinite(question: Message, answer: Message) -> Message:
    upload = {name: array.numpy() * np.inf for name, array in answer.content.array_records["upload"].items()}
    answer.content["upload"] = to_record(upload)
    return answer


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda question, answer: None, "not answered within 2 seconds"),
        (lambda question, answer: Message(Error(2, "Traceback\n  the app died"), reply_to=question), "the app died"),
        (garbled, "lacks 'facts'"),
        (infinite, "NaN or infinite"),
    ],
)
def test_a_client_that_fails_is_left_out_of_the_round(tmp_path: Path, fault: Answer, said: str) -> None:
    grid, events = InProcessGrid(make_client_app(task(tmp_path)), range(4)), list[Event]()
    grid.script["train", "2", 1] = fault
    federation = train(grid, tmp_path, events)
    [warning] = warnings(events)
    assert warning.startswith("client 1 ")
    assert said in warning
    assert None not in federation.outcomes


def test_a_client_that_is_not_there_is_left_out_and_one_that_returns_takes_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid, events = InProcessGrid(make_client_app(task(tmp_path)), [0, 1, 3]), list[Event]()

    def arrive(question: Message, answer: Message) -> Message:
        grid.connect(2, 777)
        return answer

    grid.script["train", "1", 0] = arrive
    with caplog.at_level(logging.WARNING):
        federation = train(grid, tmp_path, events)
    assert warnings(events) == ["client 2 is left out: it is not connected"]
    assert "going on without 1 of 4 clients" in caplog.text
    assert None not in federation.outcomes


def test_a_node_that_had_no_time_to_say_who_it_is_is_asked_again(tmp_path: Path) -> None:
    grid = InProcessGrid(make_client_app(task(tmp_path)), range(4))

    def too_late(question: Message, answer: Message) -> Message:
        del grid.script["query.introduce", "", 2]
        return Message(Error(3, "Message Unavailable"), reply_to=question)

    grid.script["query.introduce", "", 2] = too_late
    session = GridSession(GridEngine(grid, FAULTS), "run")
    assert session.locate(set(range(4))) == {0: 100, 1: 101, 3: 103}
    assert session.locate(set(range(4))) == {client: 100 + client for client in range(4)}


def test_no_more_questions_are_under_way_than_asked_for(tmp_path: Path) -> None:
    class Counting(InProcessGrid):
        under_way, most = 0, 0

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            tickets = super().push_messages(messages)
            self.under_way += len(tickets)
            self.most = max(self.most, self.under_way)
            return tickets

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            replies = super().pull_messages(list(message_ids)[:1])  # they come one by one
            self.under_way -= len(replies)
            return replies

    grid = Counting(make_client_app(task(tmp_path)), range(12))
    questions = {100 + client: RecordDict() for client in range(12)}
    for ahead, most in ((3, 3), (None, 12)):
        grid.most = 0
        answers = dict(ask(grid, "query.introduce", questions, 2.0, lambda: None, ahead))
        assert [node for node, reply in answers.items() if reply is not None] == list(questions)
        assert grid.most == most


def test_a_second_node_cannot_take_the_place_of_a_client_that_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = InProcessGrid(make_client_app(task(tmp_path)), [0, 1, 3])

    def arrive(question: Message, answer: Message) -> Message:
        grid.connect(0, 55)
        return answer

    grid.script["train", "1", 0] = arrive
    train(grid, tmp_path)
    assert "node 55 says it is client 0, as node 100 does" in caplog.text
    assert not grid.contexts[55].state.array_records
    assert grid.contexts[100].state.array_records


def test_a_run_that_stopped_goes_on_in_another_with_the_same_outcome(tmp_path: Path, undisturbed: str) -> None:
    grid = InProcessGrid(make_client_app(task(tmp_path)), range(4))
    # The clients have done their work of round 2, but the server never hears of it.
    for client in range(3):
        grid.script["train", "2", client] = lambda question, answer: None
    with pytest.raises(TooFewClientsError, match="round 2: only 1 of 4"):
        train(grid, tmp_path, faults=FaultSettings(time_limit=0.3))
    fresh = InProcessGrid(make_client_app(task(tmp_path)), range(4))  # another Flower run: its contexts are empty
    events: list[Event] = []
    assert train(fresh, tmp_path, events).digest() == undisturbed
    assert {event.round for event in events if event.stage == "train"} == {2, 3}


def test_a_client_on_other_data_refuses_to_work(tmp_path: Path) -> None:
    other = make_experiment({**EXPERIMENT.model_dump(exclude_defaults=True), "seed": 4})
    grid = InProcessGrid(make_client_app(FlowerTask.of(other, "fedavg", tmp_path / "flower", FAULTS)), range(4))
    with pytest.raises(TooFewClientsError, match="works on another experiment"):
        train(grid, tmp_path)
