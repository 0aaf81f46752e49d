"""How long it takes to export a fleet: one extractor and the bundles of N clients into one folder.

Run as ``python benchmarks/fleet_export.py --clients 500``. A federation of so many clients with random images is
trained for no round (what is learnt does not matter here), and then exported with ``btfl export --all-clients`` in a
process of its own, three times: the first writes the folder, the others replace it. Wall time, on the cores there are.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from many_clients import CLASSES, SHAPES, made_up

from btfl.engines import LocalEngine, train_federation
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe


def main() -> None:
    """Train, export, measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", choices=list(SHAPES), default="cnn")
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    data = made_up(arguments.clients, arguments.model)
    settings = TrainingSettings.for_model(arguments.model, rounds=0, finetune_epochs=0)
    recipe = make_recipe("fedavg", settings, data.source.sample_shape, CLASSES)
    with tempfile.TemporaryDirectory(prefix="btfl-fleet-") as temporary:
        run, fleet = Path(temporary) / "run", Path(temporary) / "fleet"
        train_federation(recipe, data, LocalEngine(arguments.workers), folder=run)
        program = Path(sys.executable).parent / "btfl"
        for number in range(1, arguments.times + 1):
            begun = time.monotonic()
            subprocess.run([program, "export", run, "--all-clients", fleet], check=True, stdout=subprocess.DEVNULL)
            seconds = time.monotonic() - begun
            size = sum(path.stat().st_size for path in fleet.rglob("*") if path.is_file()) / 1e6
            print(f"time {number}: {arguments.clients} clients in {seconds:.1f} s, {size:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
