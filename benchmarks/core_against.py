"""The core of this checkout beside that of another one, in one run: microseconds a sample, and their ratio.

    git worktree add ../before 04557cd
    OMP_NUM_THREADS=1 python benchmarks/core_against.py ../before/src

Two processes, one for each checkout, take turns case by case, so that a busy machine slows both alike. What is counted
is the thread's processor time; a round's ratio is that of neighbouring turns, and the table gives the median over the
rounds with the middle half of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

WORKER = """
import sys, time
import numpy as np
from btfl import BayesianAdapter, ClientBundle, CoherentAdapter, DiscretisedLikelihood

def client(dimensions, classes):
    rng = np.random.default_rng(0)
    means = rng.normal(0.4, 1.0, (classes, dimensions))
    def draw(count, shift):
        labels = rng.integers(classes, size=count)
        return np.maximum(means[labels] + rng.normal(shift, 1.0, (count, dimensions)), 0.0), labels
    (own, labels), (others, _) = draw(500, 0.0), draw(1500, 0.3)
    everyone = np.concatenate([own, others])
    counts = np.full(classes, len(everyone) / classes)
    statistics = {
        "local_class_counts": np.bincount(labels % max(classes // 2, 1), minlength=classes).astype(float),
        "global_class_counts": counts,
        "global_class_feature_sums": means * counts[:, None],
        "global_feature_scatter": everyone.T @ everyone,
    }
    local = DiscretisedLikelihood.fit(own)
    average = DiscretisedLikelihood.average([local, DiscretisedLikelihood.fit(others)])
    heads = [rng.normal(size=(classes, dimensions)) * 2.5 / dimensions**0.5 for _ in range(2)]
    bundle = ClientBundle(*heads, local, average, 0.6, 0.9, statistics)
    return bundle, np.concatenate([draw(512, 0.0)[0], draw(512, 0.4)[0]])

made = {}
for line in sys.stdin:
    method, dimensions, classes, batch = line.split()
    key = method, int(dimensions), int(classes)
    if key not in made:
        bundle, stream = client(*key[1:])
        made[key] = {"btfl": BayesianAdapter, "coherent": CoherentAdapter}[method](bundle), stream
    adapter, stream = made[key]
    size, adapter_predict = int(batch), adapter.predict
    parts = [stream[i : i + size] for i in range(0, len(stream), size)][:512]
    adapter.reset()
    begun = time.thread_time()
    for part in parts:
        adapter_predict(part)
    print(1e6 * (time.thread_time() - begun) / sum(map(len, parts)), flush=True)
"""
CASES = [
    (method, dimensions, classes, batch)
    for method in ("btfl", "coherent")
    for dimensions, classes in ((64, 10), (512, 65))
    for batch in (1, 32, 1024)
]


class Checkout:
    """A process that times the core of one checkout."""

    def __init__(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", WORKER]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def time(self, case: tuple[str, int, int, int]) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, case)) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the src folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    here, there = Checkout(Path(__file__).parents[1] / "src"), Checkout(options.other.resolve())
    print("| method | d, classes | batch | there, us | here, us | ratio (middle half) |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for case in CASES:
        for checkout in (here, there):
            checkout.time(case)  # what is set up at the first call is no part of the cost
        pairs = np.array([(there.time(case), here.time(case)) for _ in range(options.rounds)])
        ratios = pairs[:, 1] / pairs[:, 0]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        method, dimensions, classes, batch = case
        print(
            f"| {method} | {dimensions}, {classes} | {batch:,} | {np.median(pairs[:, 0]):.2f} | "
            f"{np.median(pairs[:, 1]):.2f} | {middle:.3f} ({low:.3f} to {high:.3f}) |",
            flush=True,
        )
    here.close()
    there.close()


if __name__ == "__main__":
    main()
