"""What the checks of uploads cost: the share of a round, and of the end of a run, that the door takes; as Markdown.

Run as ``python benchmarks/upload_checks.py``: digits, the mlp, ten clients, in this process; with a split that is dealt
once, and with one that is redrawn in every round. Door and round are timed in the same run, in seconds of this
process on the processor, so that a busy machine does not count.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from typing import Any
from unittest.mock import patch

from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.engines import LocalEngine, train_federation
from btfl.engines.door import Door
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings

ROUNDS, MOST = 5, 0.02


def measure(split: Any) -> tuple[float, float]:
    """Return seconds of the processor in the door, and of the whole run."""
    source = load_source("digits", shift="none")
    data = FederatedData(source, make_partition(source, PartitionSettings(clients=10, alpha=1.0, split=split), seed=0))
    recipe = make_recipe("fedavg", TrainingSettings.for_model("mlp", rounds=ROUNDS), source.sample_shape, 10)
    spent = 0.0

    def timed(function: Any) -> Any:
        def call(*args: Any) -> None:
            nonlocal spent
            started = time.process_time()
            function(*args)
            spent += time.process_time() - started

        return call

    with patch.object(Door, "update", timed(Door.update)), patch.object(Door, "description", timed(Door.description)):
        started = time.process_time()
        train_federation(recipe, data, LocalEngine())
        return spent, time.process_time() - started


def main() -> None:
    """Print a table; fail if the checks take more than ``MOST``."""
    print("| split | run, s | checks, s | share |\n| --- | --- | --- | --- |")
    shares = []
    for split in ("honest", "redrawn"):
        checks, run = measure(split)
        shares.append(checks / run)
        print(f"| {split} | {run:.2f} | {checks:.4f} | {100 * shares[-1]:.2f} % |")
    assert max(shares) < MOST, f"the checks take more than {100 * MOST:g} % of a run"


if __name__ == "__main__":
    main()
