"""Secure aggregation over messages: the weights of one process, dropouts at every step, and nothing in clear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'btfl[flower]'")

from flwr.app import Message

from btfl.engines import Event, FaultSettings, LocalEngine, train_federation
from btfl.errors import TooFewClientsError
from btfl.experiments.experiment import make_experiment
from btfl.flower.client_app import make_client_app
from btfl.flower.secure import KEYS, REVEAL, SHARES
from btfl.flower.session import GridEngine
from btfl.flower.task import FlowerTask
from btfl.runs.trained import TrainedFederation
from in_process_grid import InProcessGrid
from variants import one_in

EXPERIMENT = make_experiment(
    {"dataset": "digits", "shift": "none", "clients": 5, "alpha": 1.0, "model": "mlp", "seed": 3}
    | {"training": {"rounds": 2, "local_epochs": 1, "finetune_epochs": 0, "secure": True}}
)
FAULTS = FaultSettings(time_limit=0.4)


def task(folder: Path) -> FlowerTask:
    return FlowerTask.of(EXPERIMENT, "fedavg", folder / "flower", FAULTS)


def train(grid: InProcessGrid, folder: Path, events: list[Event] | None = None) -> TrainedFederation:
    recipe, data = task(folder).make()
    engine = GridEngine(grid, FAULTS, folder / "flower" / "clients")
    report = None if events is None else events.append
    return train_federation(recipe, data, engine, folder=folder / "run", report=report, faults=FAULTS)


def grid_of(folder: Path) -> InProcessGrid:
    return InProcessGrid(make_client_app(task(folder)), range(5))


def test_masked_sums_are_those_of_the_simulation_to_the_bit(tmp_path: Path) -> None:
    local = train_federation(*task(tmp_path).make(), LocalEngine())
    assert train(grid_of(tmp_path), tmp_path).digest() == local.digest()
    assert local.total is not None
    assert local.total.calibration is not None
    pooled = train_federation(*task(tmp_path).make(), LocalEngine(2))
    assert pooled.digest() == local.digest()


def test_fixed_point_changes_weights_by_no_more_than_rounding(tmp_path: Path) -> None:
    exact = make_experiment(
        EXPERIMENT.model_dump(exclude_unset=True) | {"training": {"rounds": 2, "local_epochs": 1, "finetune_epochs": 0}}
    )
    plain = train_federation(*FlowerTask.of(exact, "fedavg", tmp_path, FAULTS).make(), LocalEngine())
    secure = train_federation(*task(tmp_path).make(), LocalEngine())
    for name, array in plain.shared.items():
        np.testing.assert_allclose(secure.shared[name], array, atol=1e-5)


def test_nothing_in_clear_reaches_the_server(tmp_path: Path) -> None:
    grid, answers = grid_of(tmp_path), list[Message]()

    def listen(question: Message, answer: Message) -> Message:
        answers.append(answer)
        return answer

    for kind in ("train", "query.describe", "query.calibrate"):
        grid.script |= {(kind, "", client): listen for client in range(5)}
    train(grid, tmp_path)
    assert len(answers) == 20  # two rounds, and two sums at the end
    for answer in answers:
        assert set(answer.content) == {"facts", "upload"}
        (vector,) = (array.numpy() for array in answer.content.array_records["upload"].values())
        assert vector.dtype == np.uint64
        assert abs(vector.astype(np.float64).mean() / 2.0**64 - 0.5) < 5 * np.sqrt(1 / 12 / len(vector))


def vanish(question: Message, answer: Message) -> Message | None:
    return None


@pytest.mark.parametrize("lost", one_in(2, [{0, 4}, {1}]))
@pytest.mark.parametrize("kind", [KEYS, SHARES, "train", REVEAL])
def test_clients_that_vanish_at_any_step_do_no_harm(tmp_path: Path, kind: str, lost: set[int]) -> None:
    grid, events, gone = grid_of(tmp_path), list[Event](), list[int]()

    def vanish_once(client: int) -> Callable[[Message, Message], Message | None]:
        def answer(question: Message, true: Message) -> Message | None:
            if gone.count(client):
                return true
            gone.append(client)
            return None

        return answer

    grid.script = {(kind, "", client): vanish_once(client) for client in lost}
    federation = train(grid, tmp_path, events)
    assert set(gone) == lost
    assert None not in federation.outcomes
    told = {event.client for event in events if event.warning}
    assert told == (set() if kind == REVEAL else lost)


def test_below_the_threshold_the_round_fails_and_nothing_is_learned(tmp_path: Path) -> None:
    grid, revealed = grid_of(tmp_path), list[Message]()
    grid.script = {("train", "", client): vanish for client in range(3)}
    grid.script |= {(REVEAL, "", client): lambda question, answer: revealed.append(answer) for client in range(5)}
    with pytest.raises(TooFewClientsError, match="only 2 clients are left in a secure sum, and 3 are needed"):
        train(grid, tmp_path)
    assert revealed == []


@pytest.mark.parametrize("privacy", ["full", "summary"])
def test_noise_is_added_before_masking_and_the_same_as_in_one_process(tmp_path: Path, privacy: str) -> None:
    pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")
    training = {"rounds": 1, "local_epochs": 1, "finetune_epochs": 0, "secure": True}
    settings = {"privacy": privacy, "privacy_noise": "seeded", "feature_radius": 14.0}
    experiment = make_experiment(EXPERIMENT.model_dump(exclude_unset=True) | {"training": training | settings})
    private = FlowerTask.of(experiment, "fedavg", tmp_path / "flower", FAULTS)
    recipe, data = private.make()
    grid = InProcessGrid(make_client_app(private), range(5))
    engine = GridEngine(grid, FAULTS, tmp_path / "flower" / "clients")
    found = train_federation(recipe, data, engine, folder=tmp_path / "run", faults=FAULTS)
    assert found.digest() == train_federation(recipe, data, LocalEngine()).digest()
    assert found.total is not None
    assert found.total.calibration is None
    assert (tmp_path / "run" / "privacy.json").exists()
