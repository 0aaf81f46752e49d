"""The monitor's alarms on the streams of ``btfl drift``: false alarms beside the rate that was promised, and the delay.

Run as ``python benchmarks/alarms.py RUN`` on a finished run of ``btfl bench``. Levels are found on each client's own
validation features, before any test stream is looked at, and go along with its bundle, from which all features are then
taken away; the streams are of the client's test samples. Beside them: levels found on training features, and those of
a bundle that holds sums alone and took no levels along. River's detectors have no rate to promise: they run as they
come, with the rate that came out. ``--why`` only prints how log tau of own samples differs from that of Gaussians with
the client's sums.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl import ClientBundle, Coherent
from btfl.export.write import without_features
from btfl.monitor import Alarm, AlarmLevels, Monitor, Own, calibrate, carrying, levels_for, own_features
from btfl.randomness import generator
from btfl.runs.layout import RunFiles
from btfl.studies.drift.detectors import SIGNALS, river, scaled
from btfl.studies.drift.protocol import RECIPE, Protocol, first_alarm, judge, streams
from btfl.studies.drift.scenarios import make_base, open_run

Floats = NDArray[np.float64]
FirstAlarm = Callable[[Floats], int]


def ours(bundle: Any, calibration: AlarmLevels, rate: float) -> FirstAlarm:
    def first(features: Floats) -> int:
        method, found = Coherent(bundle), list[Alarm]()
        method.predict(features)
        Monitor(calibration, rate=rate, warm_up=calibration.warm_up, on_alarm=found.append).watch(method.trace)
        return int(found[0].sample) if found else len(features)

    return first


def library(bundle: Any, name: str, signal: str, warm_up: int) -> FirstAlarm:
    made = {
        "ADWIN": lambda: river().ADWIN(clock=1),
        "KSWIN": lambda: river().KSWIN(seed=0),
        "Page-Hinkley": lambda: river().PageHinkley(),
    }
    return lambda features: first_alarm(made[name](), scaled(SIGNALS[signal][1], bundle, features).tolist(), warm_up)


def found_levels(bundle: ClientBundle, warm_up: int) -> dict[str, AlarmLevels]:
    """Return the levels of a client by what they were found on, each as a server or a device gets them."""
    alone = without_features(bundle)
    method = Coherent(alone)
    sent = carrying(alone, levels_for(method, bundle, warm_up))
    training = Own(bundle.statistic("train_features"), "training", 0)
    return {
        "validation, gone along": levels_for(method, sent, warm_up),
        "training": calibrate(method, training, warm_up),
        "sums alone": levels_for(method, alone, warm_up),
    }


def why(folder: Path) -> None:
    """Print log tau of own validation samples, and of Gaussians with the client's sums; means over clients."""
    found = []
    for bundle in (ClientBundle.load(path.parent) for path in sorted(folder.glob("client-*/bundle.json"))):
        method, alone = Coherent(bundle), without_features(bundle)
        for own in (own_features(bundle), own_features(alone, method.settings)):
            method.reset()
            method.predict(own.features)
            log_tau = method.trace["log_tau"]
            found.append((log_tau.mean(), (log_tau < 0).mean(), np.quantile(log_tau, 0.01)))
    print("| own samples | mean log tau | share below 0 | 1 % quantile |\n| --- | ---: | ---: | ---: |")
    for name, rows in (("validation", found[::2]), ("from the sums", found[1::2])):
        mean, below, low = np.mean(rows, axis=0)
        print(f"| {name} | {mean:.2f} | {below:.3f} | {low:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--no-river", action="store_true")
    parser.add_argument("--why", action="store_true", help="only print how sums differ from samples")
    chosen = parser.parse_args()
    if chosen.why:
        why(RunFiles(chosen.run).training(RECIPE).final.folder)
        return
    protocol = Protocol(draws=chosen.draws)
    evaluation = open_run(chosen.run, ("coherent",), None)
    alarms: dict[str, list[tuple[list[int], list[int]]]] = {}
    for number in range(len(evaluation.manifest.clients)):
        base = make_base(evaluation, number)
        bundle = base.clients[RECIPE].bundle
        quiet, drifting = streams(base, protocol)
        detectors: dict[str, FirstAlarm] = {}
        for source, calibration in found_levels(bundle, protocol.warm_up).items():
            for rate in (1.0, 0.1):
                detectors[f"monitor, {source}, {rate:g} promised"] = ours(bundle, calibration, rate)
        if not chosen.no_river:
            for name in ("ADWIN", "KSWIN", "Page-Hinkley"):
                for signal in ("entropy", "evidence"):
                    detectors[f"{name}, {SIGNALS[signal][0]}"] = library(bundle, name, signal, protocol.warm_up)
        for title, first in detectors.items():
            alarms.setdefault(title, []).append(([first(one) for one in quiet], [first(one) for one in drifting]))
        print(f"client {number} done", flush=True)
    print("| detector | false alarms in 1,000 | 95 % interval | found % | median delay | 95 % interval |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for title, found in alarms.items():
        quiet_alarms, drifts = (np.array([one[i] for one in found]) for i in (0, 1))
        judged = judge(quiet_alarms, drifts, protocol)
        rng = generator(0, "alarms bootstrap")
        rates = [
            judge(quiet_alarms[pick], drifts[pick], protocol)["false_alarms"]
            for pick in rng.integers(len(found), size=(400, len(found)))
        ]
        low, high = np.quantile(rates, [0.025, 0.975])
        delays = f"{judged['delay']:g} | {judged['delay_low']:g} to {judged['delay_high']:g}"
        found_share = 100 * judged["detected"]
        print(f"| {title} | {judged['false_alarms']:.3f} | {low:.3f} to {high:.3f} | {found_share:.0f} | {delays} |")


if __name__ == "__main__":
    main()
