"""Both versions of Coherent, one sample at a time, in one run: microseconds a sample and their ratio.

Run as ``python benchmarks/versions.py``. The second version has class means of the client's own, its dearest case: one
head more. The two take turns, so that a busy machine slows both alike; what is counted is the thread's processor time,
and the ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from btfl import ClientBundle, Coherent, Summary
from btfl.methods.coherent import WatchfulCoherent
from btfl.randomness import generator

SIZES = ((64, 10), (64, 62), (512, 10), (1280, 65), (1280, 1000))


def client(dimensions: int, classes: int) -> ClientBundle:
    rng = generator(0, "versions", dimensions, classes)
    means = rng.normal(0.4, 1.0, (classes, dimensions))
    labels = np.arange(max(4 * classes, 400)) % classes
    drawn = [means[labels] + rng.normal(size=(len(labels), dimensions)) for _ in range(2)]
    own, others = (Summary.of(part, labels, classes) for part in drawn)
    return ClientBundle.of(means, 1.1 * means, own, own + others, features=drawn[0], labels=labels)


def seconds(method: Coherent, samples: list[np.ndarray]) -> float:
    started = time.thread_time()
    for sample in samples:
        method.predict(sample)
    return time.thread_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--samples", type=int, default=200, help="in a round")
    typed = parser.parse_args()
    print("| dimensions, classes | first | second | ratio | with strangeness |\n| --- | ---: | ---: | ---: | ---: |")
    for dimensions, classes in SIZES:
        bundle = client(dimensions, classes)
        rows = bundle.statistic("train_features")[: typed.samples]
        samples = [np.ascontiguousarray(row[None]) for row in np.resize(rows, (typed.samples, dimensions))]
        methods = (
            Coherent(bundle, preset="first"),
            Coherent(bundle, inverse_kappa=0.3),
            WatchfulCoherent(bundle, inverse_kappa=0.3),
        )
        times = np.array([[seconds(method, samples) for method in methods] for _ in range(typed.rounds)])
        first, second, _ = 1e6 * np.median(times, axis=0) / typed.samples
        ratio, watchful = np.median(times[:, 1:] / times[:, :1], axis=0)
        print(f"| {dimensions}, {classes} | {first:.1f} | {second:.1f} | {ratio:.2f} | {watchful:.2f} |", flush=True)


if __name__ == "__main__":
    main()
