"""What the core costs, features in and probabilities out, beside the published procedure; as a Markdown table.

Run as ``OMP_NUM_THREADS=1 python benchmarks/core.py``. Every round times each case once, one after another, so that a
busy machine slows all of them alike; what is counted is this thread's processor time, so that waiting for a core is
not; the table gives the least and the median over the rounds. ``--long`` streams a
million samples through the core and watches memory, a and b, and the precision of e.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: one thread, as on a small device

import argparse
import gc
import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from btfl import Btfl, ClientBundle, DiscretisedLikelihood, LinearHead, expected_weight
from btfl.core.likelihood import THRESHOLD

Floats = NDArray[np.float64]
SIZES = ((64, 10), (512, 65), (512, 1_000))
BATCHES = (1, 32, 1_024)
GRID = np.linspace(0.01, 0.99, 100)


def make_client(dimensions: int, classes: int) -> tuple[ClientBundle, Floats]:
    """Make a client and a stream for it, half its own data and half others', with heads as sure as trained ones."""
    rng = np.random.default_rng(0)
    means = rng.uniform(-1.0, 1.2, (4, dimensions))  # own data first
    own, *others = (np.maximum(rng.normal(mean, 1.0, (500, dimensions)), 0.0) for mean in means)
    local = DiscretisedLikelihood.fit(own)
    heads = [LinearHead(rng.normal(size=(classes, dimensions)) * 2.5 / dimensions**0.5) for _ in range(2)]
    entropies = [float(np.mean([_entropy(_softmax(head.weight @ z)) for z in own[:200]])) for head in heads]
    everyone = DiscretisedLikelihood.average([local, *map(DiscretisedLikelihood.fit, others)])
    bundle = ClientBundle(heads[0], heads[1], local, everyone, entropies[1], entropies[0])
    source = rng.integers(0, 2, 2_048) * rng.integers(1, 4, 2_048)
    return bundle, np.maximum(rng.normal(means[source], 1.0), 0.0)


class Published:
    """The published procedure: one sample at a time, a frozen scipy Beta and 100 points of the integrand for each."""

    def __init__(self, bundle: ClientBundle) -> None:
        self.bundle, self.a, self.b = bundle, 1.0, 1.0
        self.local, self.everyone = bundle.local_likelihood.smoothed(), bundle.global_likelihood.smoothed()

    def predict(self, features: Floats) -> Floats:
        return np.stack([self.one(z) for z in features])

    def one(self, z: Floats) -> Floats:
        bundle, d = self.bundle, self.bundle.dimensions
        personal, everyone = _softmax(bundle.personal_head.weight @ z), _softmax(bundle.global_head.weight @ z)
        mean_l, mean_g = bundle.mean_entropies
        excess_l, excess_g = _entropy(personal) - mean_l, _entropy(everyone) - mean_g
        on = z > THRESHOLD
        q_l = float(np.log(np.where(on, 1 - self.local, self.local)).sum())
        q_g = float(np.log(np.where(on, 1 - self.everyone, self.everyone)).sum())
        if q_l > q_g and excess_l < 0 < excess_g:
            self.b += 1
        elif q_l < q_g and excess_g < 0 < excess_l:
            self.a += 1
        total = self.a + self.b
        if total > 16:
            self.a, self.b = 1 + self.a / total, 1 + self.b / total
        u_l, u_g = np.exp(excess_l / mean_l), np.exp(excess_g / mean_g)
        tau = np.exp(np.clip((u_l * q_l - u_g * q_g) / d, -30, 30))
        prior = stats.beta(self.a, self.b)
        e = float(np.trapezoid(prior.pdf(GRID) * GRID / (GRID + (1 - GRID) * tau), GRID))
        return np.asarray(e * everyone + (1 - e) * personal)


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max())
    total: float = weights.sum()
    return np.asarray(weights / total)


def _entropy(p: Floats) -> float:
    return float(-(p * np.log(p + 1e-300)).sum())


@dataclass
class Case:
    """Something to time: a procedure at a batch size."""

    predict: Callable[[Floats], Floats]
    batch: int
    samples: int
    microseconds: list[float]

    def run(self, stream: Floats, start: int) -> None:
        rows = [stream[i : i + self.batch] for i in range(start, start + self.samples, self.batch)]
        begun = time.thread_time()
        for row in rows:
            self.predict(row)
        self.microseconds.append(1e6 * (time.thread_time() - begun) / self.samples)


def time_size(dimensions: int, classes: int, rounds: int) -> Iterator[str]:
    """Return the rows of the table for one size."""
    bundle, stream = make_client(dimensions, classes)
    stream = np.concatenate([stream, stream])
    ours = [Case(Btfl(bundle).predict, batch, max(batch, 128), []) for batch in BATCHES]
    theirs = Case(Published(bundle).predict, 1, 16, [])
    for number in range(rounds + 1):
        for case in (*ours, theirs):
            case.run(stream, number % 8 * 128)
    for case in (*ours, theirs):
        case.microseconds.pop(0)  # the first round fills caches
    for case in ours:
        ratio = np.median(np.array(theirs.microseconds) / np.array(case.microseconds))
        times = f"{min(case.microseconds):.2f} | {np.median(case.microseconds):.2f}"
        yield f"| {dimensions} | {classes} | btfl, batch {case.batch} | {times} | {ratio:.0f} |"
    times = f"{min(theirs.microseconds):.0f} | {np.median(theirs.microseconds):.0f}"
    yield f"| {dimensions} | {classes} | published, batch 1 | {times} | 1 |"


def stream_many(samples: int) -> Iterator[str]:
    """Stream so many samples, a batch of 1,000 at a time and every tenth thousand one by one."""
    bundle, stream = make_client(64, 10)
    adapter = Btfl(bundle)
    chunks = samples // 1_000
    lowest, highest, sums, worst, traced, resident = np.inf, 0.0, 0.0, 0.0, [], []
    tracemalloc.start()
    for number in range(chunks):
        rows = np.roll(stream, -7 * number, axis=0)[:1_000]  # never twice the same run of samples
        if number % 10 == 9:
            for i in range(1_000):
                adapter.predict(rows[i : i + 1])
        else:
            probabilities, trace = adapter.predict(rows), adapter.trace
            lowest, highest = min(lowest, trace.a.min(), trace.b.min()), max(highest, (trace.a + trace.b).max())
            sums = max(sums, float(np.abs(probabilities.sum(axis=1) - 1).max()))
            # precision: what e is now is what it would be computed afresh from the same a, b and tau_hat
            fresh = expected_weight(trace.a[:5], trace.b[:5], trace.tau_hat[:5])
            worst = max(worst, float(np.abs(fresh - trace.e[:5]).max()))
        if number % max(chunks // 10, 1) == max(chunks // 10, 1) - 1:
            gc.collect()  # what is only waiting to be collected is not held
            traced.append(tracemalloc.get_traced_memory()[0] / 1e6)
            resident.append(_resident())
    tracemalloc.stop()
    again = Btfl(bundle)
    again.restore(adapter.state)
    same = again.predict(stream).tobytes() == adapter.predict(stream).tobytes()
    yield f"- {adapter.state['seen'] - len(stream):,} samples streamed"
    yield f"- memory that Python holds, at each tenth of the way (MB): {', '.join(f'{m:.2f}' for m in traced)}"
    yield f"- resident memory (MB): {', '.join(f'{m:.0f}' for m in resident)}"
    yield f"- smallest of a and b: {lowest:.6f}; largest a + b: {highest:.6f}"
    yield f"- worst |sum of probabilities - 1|: {sums:.1e}; worst difference of e from one computed afresh: {worst:.1e}"
    yield f"- a fresh adapter with the final state goes on with the same bits: {same}"


def _resident() -> float:
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123 - no path of a person's
            return int(file.read().split()[1]) * resource.getpagesize() / 1e6
    except OSError:  # not Linux: the peak then
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60, help="how often each case is timed")
    parser.add_argument("--long", type=int, default=0, metavar="N", help="also stream N samples, 1000000 say")
    arguments = parser.parse_args()
    print("| d | classes | procedure | us a sample, least | median | times faster than published |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dimensions, classes in SIZES:
        for row in time_size(dimensions, classes, arguments.rounds):
            print(row, flush=True)
    if arguments.long:
        print()
        for line in stream_many(arguments.long):
            print(line, flush=True)


if __name__ == "__main__":
    main()
