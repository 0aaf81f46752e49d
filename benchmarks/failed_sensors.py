"""Looks of signals: single windows of sensors that have failed, on natural clients.

Run as ``python benchmarks/failed_sensors.py hapt-natural --root FILE.npz``. Each client's ``Looks`` is made of its
training and validation parts, and the level is that of 1 % false alarms; printed is how many of its own test windows
are above it, and how many of the same windows when a sensor has failed. Nothing is chosen here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.experiments.experiment import make_experiment
from btfl.experiments.gather import gather
from btfl.experiments.load import load_data
from btfl.monitor import Looks
from btfl.randomness import generator

Floats = NDArray[np.float64]
FALSE_ALARMS = 0.01


def failed(own: Floats, all_values: Floats, client: int) -> dict[str, Floats]:
    """Return a client's windows as failed sensors would show them."""
    half = own.shape[-1] // 2
    half_dead = own.copy()
    half_dead[..., half:] = 0.0
    noise = generator(0, "failed sensors", client).normal(size=own.shape) * all_values.std()
    return {
        "dead": np.zeros_like(own),
        "stuck": np.broadcast_to(own[:, :1], own.shape),
        "second half of the channels dead": half_dead,
        "four times as sensitive": np.clip(4 * own, all_values.min(), all_values.max()),
        "noise of the data's deviation": own + noise,
        "signs flipped": -own,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="with signals, for example hapt-natural")
    parser.add_argument("--root", type=Path, help="where the data are")
    typed = parser.parse_args()
    data = load_data(make_experiment(gather(typed.experiment)), typed.root)
    values = np.asarray(data.source.pool.values, dtype=np.float64)
    found: dict[str, list[float]] = {}
    for client in range(len(data)):
        part, another = data.partition.parts[client], data.partition.parts[(client + 1) % len(data)]
        looks = Looks.of(values[part.train], values[part.validation])
        own, level = values[part.test], looks.level(FALSE_ALARMS)
        kinds = {"own": own, **failed(own, values, client), "the next client's": values[another.test]}
        for kind, windows in kinds.items():
            found.setdefault(kind, []).append(100 * float((looks.strangeness(windows) > level).mean()))
    print(f"| test windows above the level of 1 %, mean of {len(data)} clients | in % |\n| --- | ---: |")
    for kind, shares in found.items():
        print(f"| {kind} | {np.mean(shares):.1f} |")


if __name__ == "__main__":
    main()
