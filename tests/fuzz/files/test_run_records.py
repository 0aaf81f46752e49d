"""Damaged records of runs, trainings and federations: each is refused in one sentence, or can be used."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from btfl import Summary
from btfl.core.client import ClientOutcome
from btfl.errors import BtflError
from btfl.runs.checkpoint import RunFolder, TrainingState
from btfl.runs.costs import Cost, read_costs, training_cost, write_costs
from btfl.runs.layout import RunFiles
from btfl.runs.saved import load_run
from btfl.runs.trained import TrainedFederation
from btfl.storage import sealed, write_json
from fuzz.files.damage import damaged_bytes, damaged_json
from making import make_bundle

COMMITTED = Path(__file__).resolve().parents[3] / "results" / "cifar10-cnn-dir0.1"
SPEC = {
    "recipe": "fedavg", "settings": {"model": "mlp", "model_options": {}, "rounds": 2}, "image_shape": [8, 8, 1],
    "classes": 3, "clients": 2,
}  # fmt: skip


def a_run(folder: Path) -> Callable[[], object]:
    """A finished run: what a report reads first."""
    shutil.copy(COMMITTED / "results.parquet", folder)
    record = json.loads((COMMITTED / "run.json").read_text())
    record.pop("record_sha256", None)  # btfl 0.1.0 wrote none
    write_json(folder / "run.json", sealed(record))
    write_costs([Cost("cnn", "btfl", "BTFL", 32, [0.5, 0.4], [1.1, 1.2], 300.5)], folder / "speed.json")
    log = RunFiles(folder).training("fedavg").log
    log.parent.mkdir(parents=True)
    costs = {"seconds": 1.5, "bytes_up": 10, "bytes_down": 20}
    lines = [
        {"event": "start"},
        *({"event": "round", "round": n, **costs} for n in (1, 2)),
        {"event": "end", "round": 2},
    ]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def read() -> object:
        run = load_run(folder)
        costs = [(cost.seconds, cost.ratio) for cost in read_costs(folder)]
        return (
            repr(run),
            run.seed,
            run.draw,
            run.manifest_hash,
            run.notes,
            costs,
            dict(run.record),
            repr(training_cost(folder, "fedavg")),
        )

    return read


def a_training(folder: Path) -> Callable[[], object]:
    """A training after two rounds."""
    run = RunFolder(folder)
    run.begin(SPEC)
    for round_ in (1, 2):
        weights = {"w": np.full(3, round_, np.float32)}
        run.save(TrainingState(round_, weights, {}, ({"loss": 0.5},) * round_), {0: weights, 1: weights})

    def read() -> object:
        again = RunFolder(folder)
        again.check(SPEC)
        state = again.load()
        assert state is not None
        private = {client: state.private[client]["w"].tolist() for client in state.private}
        assert set(private) == {0, 1}
        # the older of both checkpoints is a right answer too
        assert private == {0: [state.round] * 3, 1: [state.round] * 3}
        assert len(state.history) == state.round
        return dict(again.last_metrics()), state.shared["w"].tolist() == [state.round] * 3

    return read


def a_federation(folder: Path) -> Callable[[], object]:
    """What a training ends with."""
    bundle, weights = make_bundle(6, 3), {"w": np.ones(3, np.float32)}
    z = np.abs(np.random.default_rng(0).normal(size=(12, 6)))
    outcomes = tuple(ClientOutcome(bundle, {"finetuned": weights}) for _ in range(2))
    TrainedFederation(SPEC, weights, outcomes, Summary.of(z, np.arange(12) % 3, 3)).save(folder)

    def read() -> object:
        found = TrainedFederation.load(folder)
        clients = [found.client(number) for number in range(len(found.outcomes)) if found.outcomes[number] is not None]
        return repr(found), repr(clients), [sorted(client.networks) for client in clients], dict(found.spec)

    return read


UNSEALED = ("speed.json", "log.jsonl")
"""Timings and what happened, which no result follows from: without a sha256."""
MAKERS = (a_run, a_training, a_federation)


def fuzz(folder: Path, cases: int, seed: int) -> Counter[str]:
    rng, counts = random.Random(seed), Counter[str]()
    for make in MAKERS:
        place = folder / make.__name__
        place.mkdir()
        read = make(place)
        whole = read()
        files = sorted(path for path in place.rglob("*") if path.suffix in (".json", ".jsonl", ".safetensors"))
        for _ in range(-(-cases // len(MAKERS))):
            path = rng.choice(files)
            content = path.read_bytes()
            values = path.suffix == ".json" and path.name not in UNSEALED and rng.random() < 0.6
            path.write_bytes(damaged_json(json.loads(content), rng) if values else damaged_bytes(content, rng))
            try:
                found = read()
                how = "loaded"
                # what has no sha256 or was edited with care may load as something else, but is usable
                assert values or path.name in UNSEALED or found == whole, f"{path} changed silently"
            except BtflError:
                how = "refused"
            except AssertionError:
                if not values:
                    raise
                how = "loaded"
            counts[f"{make.__name__}: {how}"] += 1
            path.write_bytes(content)
    return counts


def test_damaged_records_of_runs(tmp_path: Path) -> None:
    print(fuzz(tmp_path, 300, seed=0))


@pytest.mark.slow
def test_ten_thousand_damaged_records_of_runs(tmp_path: Path) -> None:
    print(fuzz(tmp_path, 10_000, seed=1), "0 raw errors, 0 silent changes")
