"""Which datasets ``Looks`` tells apart, frame by frame, without any network or federation.

Run as ``python benchmarks/looks_between.py --size 64 pacs=FILE.tar letters=FILE.npz:x``. Each dataset in turn is the
client's own, enlarged or made smaller to this size: 600 images that are known, 200 held out, 500 to be judged. Printed
is how many of the other datasets' images, and of frames of failed cameras, are above the level that 1 % of the client's
other images are above; the mean over three draws. Nothing is chosen here.
"""

from __future__ import annotations

import argparse

import numpy as np
from strangeness import CHANGES, FALSE_ALARMS, frames, other_images

from btfl.monitor import Looks
from btfl.pixels.types import Images
from btfl.randomness import generator

KNOWN, HELD_OUT, JUDGED, STRANGE, DRAWS = 600, 200, 500, 200, 3


def found(own: Images, others: dict[str, Images]) -> dict[str, float]:
    """Return what is found of each kind in %, the mean over draws."""
    shares: dict[str, list[float]] = {}
    for draw in range(DRAWS):
        order = generator(draw, "own images").permutation(len(own))
        known, held_out, judged = np.split(own[order[: KNOWN + HELD_OUT + JUDGED]], [KNOWN, KNOWN + HELD_OUT])
        looks = Looks.of(known, held_out)
        level = np.quantile(looks.strangeness(judged), 1 - FALSE_ALARMS)
        changed = {name: change(judged[:STRANGE]) for name, change in CHANGES.items()}
        for name, images in {**others, **changed}.items():
            shares.setdefault(name, []).append(100 * float((looks.strangeness(images) > level).mean()))
        above = looks.strangeness(judged) > looks.level(FALSE_ALARMS)
        shares.setdefault("own, at a device's level", []).append(100 * float(above.mean()))
    return {name: float(np.mean(values)) for name, values in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--size", type=int, default=64, help="of all images, in pixels a side")
    typed = parser.parse_args()
    every = {
        name: other_images(place, typed.size, KNOWN + HELD_OUT + JUDGED)
        for name, place in (text.split("=", 1) for text in typed.datasets)
    }
    table = {
        name: found(own, {other: every[other][:STRANGE] for other in every if other != name} | frames(typed.size))
        for name, own in every.items()
    }
    kinds = list(dict.fromkeys(kind for row in table.values() for kind in row))
    print(f"| {typed.size} pixels a side: found in % | " + " | ".join(table) + " |\n| --- |" + " ---: |" * len(table))
    for kind in kinds:
        print(f"| {kind} | " + " | ".join(f"{row[kind]:.1f}" if kind in row else "" for row in table.values()) + " |")


if __name__ == "__main__":
    main()
