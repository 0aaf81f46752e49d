"""How ``Looks`` measures: numbers, usual quantile, power and directions, chosen without any test sample.

Run as ``python benchmarks/choose_looks.py RUN --other letters=FILE.npz:x --other pacs=FILE.tar`` on finished runs of
``btfl bench`` with images. A client's training and validation images are cut into five parts; each is compared with
looks of the four others, which gives the level of 1 % false alarms, and the share of strange frames above it. The
frames are those of ``benchmarks/strangeness.py``; the tables there have other own samples, of the test stream. Printed
is the mean over kinds, clients and runs, the best settings first, and a Mahalanobis distance beside them.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from strangeness import FALSE_ALARMS, frames, other_images, smeared

from btfl.data.partition import make_partition
from btfl.monitor.directions import USUAL, distance, usual_directions
from btfl.monitor.statistics import FINER, smallest_step, statistics_of
from btfl.randomness import generator
from btfl.studies.drift.scenarios import open_run

Floats = NDArray[np.float64]
Setting = tuple[float | None, float, str]
FOLDS, MOST_SMEARED = 5, 100
SHARES, POWERS, DIRECTIONS = (0.9, 0.95, 0.975, 0.99), (2, 3, 4, 6), ("principal", "one by one", "both")
MAHALANOBIS: Setting = (None, 2, "principal")
SETTINGS: tuple[Setting, ...] = (MAHALANOBIS, *product(SHARES, POWERS, DIRECTIONS))


def numbers_of(images: NDArray[np.uint8], finer: int) -> Floats:
    """Return the numbers that looks take of images."""
    return statistics_of(images, smallest_step(images), finer)


def fitted(known: Floats, share: float | None, which: str) -> tuple[Floats, Floats]:
    """Return centre and directions; without a share each direction is in units of its variance."""
    centre, directions = usual_directions(known, share or USUAL)
    numbers = len(centre)
    chosen = {"principal": directions[:, :numbers], "one by one": directions[:, numbers:], "both": directions}[which]
    if share is None:
        chosen = chosen / np.sqrt((((known - centre) @ chosen) ** 2).mean(axis=0))
    return centre, chosen


def found(own: Floats, folds: NDArray[np.intp], strange: dict[str, Floats], setting: Setting) -> list[float]:
    """Return which share of each kind is above the level that own samples have, each fifth beside the others."""
    share, power, which = setting
    looks = [fitted(own[folds != fold], share, which) for fold in range(FOLDS)]
    held_out = [distance(own[folds == fold], *one, power) for fold, one in enumerate(looks)]
    level = np.quantile(np.concatenate(held_out), 1 - FALSE_ALARMS)
    return [float(np.mean([distance(kind, *one, power) > level for one in looks])) for kind in strange.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FILE", help="images of another dataset")
    parser.add_argument("--most", type=int, default=100, help="images of each kind")
    parser.add_argument("--clients", type=int, default=8, help="how many clients of each run")
    parser.add_argument("--finer", type=int, default=FINER, help=f"times that steps of steps are taken; now {FINER}")
    typed = parser.parse_args()
    table: dict[Setting, list[list[float]]] = {setting: [] for setting in SETTINGS}
    for run in typed.runs:
        evaluation = open_run(run, ("fedavg",), None)
        pool, size = evaluation.source.pool, evaluation.source.pool.values.shape[1]
        partition = make_partition(evaluation.source, evaluation.manifest.partition, evaluation.manifest.seed)
        others = {name: other_images(place, size, typed.most) for name, place in (o.split("=", 1) for o in typed.other)}
        kinds = {name: numbers_of(images, typed.finer) for name, images in (frames(size) | others).items()}
        rows: dict[Setting, list[list[float]]] = {setting: [] for setting in SETTINGS}
        for number in range(min(typed.clients, evaluation.seen)):
            part = partition.parts[number]
            images = pool.take(np.concatenate([part.train, part.validation])).values
            own = numbers_of(images, typed.finer)
            folds = generator(0, "folds", number).permutation(len(own)) % FOLDS
            strange = {**kinds, "smeared": numbers_of(smeared(images[:MOST_SMEARED]), typed.finer)}
            for setting in SETTINGS:
                rows[setting].append(found(own, folds, strange, setting))
        for setting, of_clients in rows.items():
            table[setting].append(list(np.mean(of_clients, axis=0)))
    names = [*kinds, "smeared"]
    best = sorted(table, key=lambda setting: -float(np.mean(table[setting])))
    print("| usual | power | directions | " + " | ".join(run.name for run in typed.runs) + " | mean |")
    print("| --- | ---: | --- |" + " ---: |" * (len(typed.runs) + 1))
    for setting in (*best[:10], MAHALANOBIS):
        means = [100 * float(np.mean(row)) for row in table[setting]]
        cells = " | ".join(f"{mean:.1f}" for mean in (*means, float(np.mean(means))))
        print(f"| {setting[0] or 'variance'} | {setting[1]} | {setting[2]} | {cells} |")
    print("\n| the best, by kind | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names))
    for run, row in zip(typed.runs, table[best[0]], strict=True):
        print(f"| {run.name} | " + " | ".join(f"{100 * share:.1f}" for share in row) + " |")


if __name__ == "__main__":
    main()
