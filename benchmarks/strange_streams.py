"""Strangeness of streams beside six other scores: how soon a failed camera, or a stream of other images, is an alarm.

Run as ``python benchmarks/strange_streams.py RUN --other letters=FILE.npz:x --other office31=FILE.tar`` on a finished
run of ``btfl bench`` with images. A stream is 50 of the client's own test images and then 100 frames of one kind. Every
score gets the same memory, an average that fades over 20 samples: the six others and strangeness of single samples as
how far this average is off its mean on own validation samples, to either side. Found are the frames at which it is
above the level that 1 % of the own test samples are above, of all 100 and from the 31st on. Last, what a user has:
a ``Monitor`` with its defaults, which promises one false alarm for 10,000 own samples, how many frames it takes, and
how often own test samples are above the level of single ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from strangeness import Score, of_clients, scores

from btfl import ClientBundle, Monitor
from btfl.benchmark.evaluate import Evaluation
from btfl.methods.coherent import WatchfulCoherent
from btfl.methods.coherent.strange_stream import REMEMBERED
from btfl.monitor import level_alone, levels_for
from btfl.randomness import generator
from btfl.studies.drift.scenarios import open_run

Floats = NDArray[np.float64]
Chart = Callable[[Floats], Floats]
"""Features of a stream, in its order -> a number for each sample."""
BEFORE, FRAMES, LATER, ORDERS, FALSE_ALARMS = 50, 100, 30, 10, 0.01


def fading(values: Floats) -> Floats:
    """Return the average over the last samples after each of them."""
    found, average = np.empty(len(values)), 0.0
    for place, value in enumerate(values):
        average += (value - average) / REMEMBERED
        found[place] = average
    return found


def chart_of(score: Score, own: Floats) -> Chart:
    """Return how far the fading average of a score is off its mean on own samples, to either side."""
    known = score(own)
    mean, spread = known.mean(), max(float(known.std()), 1e-12)
    return lambda stream: np.abs(fading((score(stream) - mean) / spread))


def charts(bundle: ClientBundle) -> Mapping[str, Chart]:
    """Return every score as a chart of a stream."""
    own = np.asarray(bundle.statistics["validation_features"], dtype=np.float64)
    watchful = WatchfulCoherent(bundle)

    def ours(stream: Floats) -> Floats:
        watchful.reset()
        watchful.predict(stream)
        return np.asarray(watchful.trace["strange_stream"])

    singles = {name.removesuffix(" (ours)"): chart_of(score, own) for name, score in scores(bundle).items()}
    return {**singles, "the stream (ours)": ours}


def look(evaluation: Evaluation, others: Mapping[str, str], most: int, clients: int) -> None:
    """Print what is found by score and kind, the mean over clients, and how soon a monitor alarms."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    soon: dict[str, list[float]] = {}
    watched, false = 0, 0
    beyond: dict[float, list[float]] = {rate: [] for rate in (10.0, 1.0, 0.1)}
    for number, client in enumerate(of_clients(evaluation, others, most, clients)):
        bundle, own = client.bundle, client.own.features
        kinds = {kind: seen.features for kind, seen in client.kinds.items()}
        rng = generator(0, "strange streams", number)
        quiet = [own[rng.permutation(len(own))] for _ in range(ORDERS)]
        before = {kind: own[rng.permutation(len(own))[:BEFORE]] for kind in kinds}
        after = {kind: features[rng.integers(len(features), size=FRAMES)] for kind, features in kinds.items()}
        for name, chart in charts(bundle).items():
            heard = np.concatenate([chart(stream)[REMEMBERED:] for stream in quiet])
            level = np.quantile(heard, 1 - FALSE_ALARMS)
            for kind in kinds:
                above = chart(np.concatenate([before[kind], after[kind]]))[-FRAMES:] > level
                found.setdefault((name, kind), []).append((float(above.mean()), float(above[LATER:].mean())))
        method = WatchfulCoherent(bundle)
        levels = levels_for(method, bundle)
        for rate, shares in beyond.items():
            shares.append(float((method.strangeness.of(own) > level_alone(method.strangeness.own, rate)).mean()))
        for kind in kinds:
            began = first_alarm(method, Monitor(levels), before[kind], after[kind])
            soon.setdefault(kind, []).append(began)
        for stream in quiet:
            method.reset()
            method.predict(stream)
            false += sum(alarm.begins and alarm.kind == "strange" for alarm in Monitor(levels).watch(method.trace))
            watched += len(stream)
    names, kinds_ = dict.fromkeys(name for name, _ in found), list(soon)
    for place, title in enumerate((f"of {FRAMES} frames", f"from frame {LATER + 1} on")):
        print(f"\n| found in %, {title} | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names))
        for kind in kinds_:
            row = (100 * np.mean(found[name, kind], axis=0)[place] for name in names)
            print(f"| {kind} | " + " | ".join(f"{value:.1f}" for value in row) + " |")
    print("\n| a monitor | clients alarmed in % | frames until then: median | slowest |\n| --- | ---: | ---: | ---: |")
    for kind, places in soon.items():
        alarmed = [place for place in places if np.isfinite(place)]
        told = f"{np.median(alarmed):.0f} | {max(alarmed):.0f}" if alarmed else "|"
        print(f"| {kind} | {100 * len(alarmed) / len(places):.0f} | {told} |")
    print(f"\nFalse alarms of the monitor: {false} on {watched:,} own test samples, each seen {ORDERS} times")
    for rate, shares in beyond.items():
        print(f"Single samples beyond the level of {rate / 10:g} %: {100 * np.mean(shares):.3f} %")


def first_alarm(method: WatchfulCoherent, monitor: Monitor, before: Floats, after: Floats) -> float:
    """Return the number of frames until a strange alarm, the first being 1; infinite if there is none."""
    method.reset()
    method.predict(before)
    if "strange" in {alarm.kind for alarm in monitor.watch(method.trace)}:
        monitor.reset()  # a false alarm is counted elsewhere
        monitor.seen = len(before)
    method.predict(after)
    places = [alarm.sample for alarm in monitor.watch(method.trace) if alarm.kind == "strange" and alarm.begins]
    return float(min(places) - len(before) + 1) if places else np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--root", type=Path, help="where the data are, if not where the run found them")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FILE", help="images of another dataset")
    parser.add_argument("--most", type=int, default=200, help="images of each kind")
    parser.add_argument("--clients", type=int, default=1_000_000, help="how many clients are looked at")
    typed = parser.parse_args()
    others = dict(text.split("=", 1) for text in typed.other)
    look(open_run(typed.run, ("fedavg",), typed.root), others, typed.most, typed.clients)


if __name__ == "__main__":
    main()
