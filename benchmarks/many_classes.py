"""What the core costs beside the bare product with the heads: ratios in one run, and how cost grows, with slopes.

    OMP_NUM_THREADS=1 python benchmarks/many_classes.py                     # a Markdown table
    OMP_NUM_THREADS=1 python benchmarks/many_classes.py --growth FILE.png   # log-log plots, and a table of slopes

The bare product is features times the matrix of both heads, for a sample alone a vector times that matrix: what any
method with two heads must pay; the matrix begins at a cache line, as the methods' own do. Coherent has a third head, so
its ratio to the product of its own three is given, too. Every round times each case once, one after another, so that a
busy machine slows all alike; what is counted is this thread's processor time. A ratio is that of one round; the table
has the median and the middle half of the rounds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: one thread, as on a small device

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl import Btfl, ClientBundle, Coherent, Summary
from btfl.core.products import aligned

Floats = NDArray[np.float64]
SIZES = ((64, 10), (512, 65), (512, 1_000))
BATCHES = (1, 32, 1_024)
CLASSES = (10, 30, 100, 300, 1_000, 3_000)
DIMENSIONS = (32, 64, 128, 256, 512, 1_024)
GROWING_BATCHES = (1, 4, 16, 64, 256, 1_024)
LABELS = {
    "classes": "classes (d = 512, batch 256)",
    "dimensions": "d (100 classes, batch 256)",
    "batch": "batch (d = 512, 100 classes)",
}


def make_client(dimensions: int, classes: int) -> tuple[ClientBundle, Floats]:
    """Make a client with all that both methods need, and a stream of 1,024 samples, half of them others'.

    Features are those of a ReLU; the heads are about as sure as trained ones.
    """
    rng = np.random.default_rng(0)
    centres = rng.uniform(-1.0, 1.2, (4, dimensions))  # own data first
    means = rng.normal(0.0, 8.0 / dimensions**0.5, (classes, dimensions))

    def draw(count: int, source: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
        labels = np.where(source > 0, rng.integers(classes, size=count), rng.integers(-(-classes // 2), size=count))
        return np.maximum(rng.normal(centres[source] + means[labels], 1.0), 0.0), labels

    own, labels = draw(600, np.zeros(600, dtype=np.int64))
    mine = Summary.of(own, labels, classes)
    rest = Summary.of(*draw(1_800, np.arange(1_800) % 3 + 1), classes)
    one, two = (
        (rng.normal(size=(classes, dimensions)) * 2.5 / dimensions**0.5, rng.normal(size=classes)) for _ in range(2)
    )
    bundle = ClientBundle.of(one, two, mine, mine + rest, features=own[:200])
    return bundle, draw(1_024, rng.integers(0, 2, 1_024) * rng.integers(1, 4, 1_024))[0]


def cases_of(bundle: ClientBundle, precision: Any) -> dict[str, Callable[[Floats], Any]]:
    """Return what is timed, by name: two bare products and both methods."""
    coherent = Coherent(bundle, precision=precision)
    both = [bundle.personal_head, bundle.global_head]
    return {
        "bare": aligned(np.concatenate([head.weight for head in both]).T).__rmatmul__,
        "bare, three": aligned(np.concatenate([bundle.global_head.weight] * 3).T).__rmatmul__,
        "btfl": Btfl(bundle, precision=precision).predict,
        "coherent": coherent.predict,
    }


def time_rounds(cases: Mapping[str, Callable[[Floats], Any]], stream: Floats, batch: int, rounds: int) -> Floats:
    """Return (rounds, cases) microseconds of processor time a sample."""
    parts = [stream[i : i + batch] for i in range(0, len(stream), batch)]
    parts = parts[: max(len(parts) // 8, 1)]
    samples = sum(map(len, parts))

    def once(case: Callable[[Floats], Any]) -> float:
        begun = time.thread_time()
        for part in parts:
            case(part)
        return 1e6 * (time.thread_time() - begun) / samples

    for case in cases.values():
        once(case)  # what is set up at the first call is no part of the cost
    return np.array([[once(case) for case in cases.values()] for _ in range(rounds)])


def ratios(rounds: int, precision: str) -> Iterator[str]:
    """Return the rows of the table."""
    for dimensions, classes in SIZES:
        bundle, stream = make_client(dimensions, classes)
        cases = cases_of(bundle, precision)
        for batch in BATCHES:
            times = dict(zip(cases, time_rounds(cases, stream, batch, rounds).T, strict=True))
            for method in ("btfl", "coherent"):
                bare = ("bare",) if method == "btfl" else ("bare", "bare, three")
                told = " | ".join(_spread(times[method] / times[name]) for name in bare)
                yield (
                    f"| {method} | {dimensions}, {classes:,} | {batch:,} | {np.median(times['bare']):.2f} | "
                    f"{np.median(times[method]):.2f} | {told}{' | ' if len(bare) == 1 else ''} |"
                )


def _spread(ratios: Floats) -> str:
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def growth(rounds: int, precision: str) -> dict[str, dict[str, tuple[list[int], list[float]]]]:
    """Return microseconds a sample by what grows and by what is timed, the rest at 512 dimensions, 100 classes, 256."""
    found: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
    for axis, sizes in (("classes", CLASSES), ("dimensions", DIMENSIONS), ("batch", GROWING_BATCHES)):
        for size in sizes:
            at = {"dimensions": 512, "classes": 100, "batch": 256, axis: size}
            bundle, stream = make_client(at["dimensions"], at["classes"])
            cases = cases_of(bundle, precision)
            least = time_rounds(cases, stream, at["batch"], rounds).min(axis=0)
            for name, microseconds in zip(cases, least, strict=True):
                xs, ys = found.setdefault(axis, {}).setdefault(name, ([], []))
                xs.append(size)
                ys.append(float(microseconds))
    return found


def slope(xs: list[int], ys: list[float]) -> float:
    """Return the slope between the last two points in log-log space: the power with which cost grows there."""
    return float(np.log(ys[-1] / ys[-2]) / np.log(xs[-1] / xs[-2]))


def draw(found: Mapping[str, Mapping[str, tuple[list[int], list[float]]]], path: Path) -> None:
    """Draw one log-log plot for each axis; beside the last point of each line is the slope there."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from btfl.report.style import INK, RC, style_of

    looks: dict[str, dict[str, Any]] = {
        "bare": {"color": INK, "linestyle": "--", "marker": "o", "label": "bare product, two heads"},
        "bare, three": {"color": INK, "linestyle": ":", "marker": "s", "label": "bare product, three heads"},
        "btfl": {**style_of("btfl").on_line, "label": "BTFL"},
        "coherent": {**style_of("coherent").on_line, "label": "Coherent (ours)"},
    }
    with mpl.rc_context(dict(RC)):
        figure = Figure(figsize=(10.4, 4.2))
        axes = figure.subplots(1, len(found), sharey=True)
        for panel, (name, curves) in zip(axes, found.items(), strict=True):
            ends = _apart([np.log10(ys[-1]) for _, ys in curves.values()])
            for (case, (xs, ys)), end in zip(curves.items(), ends, strict=True):
                panel.loglog(xs, ys, linewidth=1.3, markersize=4.5, **looks[case])
                panel.annotate(
                    f"{slope(xs, ys):.2f}".replace("-", "\N{MINUS SIGN}"), (xs[-1], 10**end), (5, 0), fontsize=7.5,
                    textcoords="offset points", va="center", annotation_clip=False, color=looks[case]["color"],
                )  # fmt: skip
            panel.set_xlabel(LABELS[name])
            panel.set_xticks(xs, [f"{x:,}" for x in xs])
            panel.minorticks_off()
        axes[0].set_yticks([0.3, 1, 3, 10, 30, 100, 300], ["0.3", "1", "3", "10", "30", "100", "300"])
        axes[0].set_ylabel("microseconds a sample")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.savefig(path)


def _apart(places: list[float], least: float = 0.11) -> list[float]:
    """Move labels on a logarithmic axis up until none covers another; the order stays."""
    found = list(places)
    for lower, upper in pairwise(sorted(range(len(places)), key=places.__getitem__)):
        found[upper] = max(found[upper], found[lower] + least)
    return found


def main() -> None:
    """Print the table, or draw the figure and print its slopes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="how often each case is timed")
    parser.add_argument("--precision", default="same-bits", help="same-bits, double or single")
    parser.add_argument("--growth", type=Path, metavar="FILE", help="draw how cost grows, instead of the table")
    options = parser.parse_args()
    if options.growth is None:
        print("| method | d, classes | batch | bare, us | method, us | x bare | x bare, three heads |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
        for row in ratios(options.rounds, options.precision):
            print(row, flush=True)
        return
    found = growth(options.rounds, options.precision)
    draw(found, options.growth)
    print("| grows | case | microseconds a sample | slope at the end |\n| --- | --- | --- | ---: |")
    for axis, curves in found.items():
        for case, (xs, ys) in curves.items():
            told = ", ".join(f"{x:,}: {y:.3g}" for x, y in zip(xs, ys, strict=True))
            print(f"| {axis} | {case} | {told} | {slope(xs, ys):.2f} |")


if __name__ == "__main__":
    main()
