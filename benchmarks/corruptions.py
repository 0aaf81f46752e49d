"""How long the corruptions take, for each image and for the shifted streams of a 20-client benchmark.

Run as ``python benchmarks/corruptions.py``; ``OMP_NUM_THREADS=1`` keeps it to one core.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from btfl.pixels.corruptions import CORRUPTIONS, corrupt
from btfl.pixels.types import Images
from btfl.randomness import generator

CLIENTS, IMAGES_EACH = 20, 500
REPEATS = 3


def milliseconds(images: Images, name: str, severity: int) -> float:
    """Return the time for one image of a batch: the best of some runs, the first (which fills caches) left out."""
    corrupt(images[:1], name, severity, generator(0, "warm"))
    runs = []
    for repeat in range(REPEATS):
        start = time.perf_counter()
        corrupt(images, name, severity, generator(repeat, "time"))
        runs.append(time.perf_counter() - start)
    return 1000 * min(runs) / len(images)


def whole_setting(images: Images, severity: int) -> float:
    """Return the seconds for all clients, each corrupting its images in 15 batches, one a corruption."""
    start = time.perf_counter()
    for client in range(CLIENTS):
        for number, name in enumerate(CORRUPTIONS):
            corrupt(images[number :: len(CORRUPTIONS)], name, severity, generator(0, "setting", client, name))
    return time.perf_counter() - start


def main() -> None:
    """Print one line for each corruption and one for the whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=32, help="height and width of the images")
    parser.add_argument("--images", type=int, default=IMAGES_EACH, help="images in a batch")
    parser.add_argument("--severity", type=int, default=5)
    options = parser.parse_args()

    shape = (options.images, options.side, options.side, 3)
    images = generator(0, "images").integers(0, 256, shape, dtype=np.uint8)
    print(f"{'corruption':<20} {'ms/image':>9}   {options.side}x{options.side}, severity {options.severity}")
    for name in CORRUPTIONS:
        print(f"{name:<20} {milliseconds(images, name, options.severity):>9.3f}")
    seconds = whole_setting(images, options.severity)
    print(f"{CLIENTS} clients x {options.images} images, all corruptions alike: {seconds:.1f} s")


if __name__ == "__main__":
    main()
