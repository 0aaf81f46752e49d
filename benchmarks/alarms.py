"""The monitor's alarms on the streams of ``btfl drift``: false alarms beside the rate that was promised, and the delay.

Run as ``python benchmarks/alarms.py RUN`` on a finished run of ``btfl bench``. Levels are found on each client's own
validation features (or its training features, or its sums), before any test stream is looked at; the streams are of the
client's test samples. River's detectors have no rate to promise: they run as they come, with the rate that came out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl import Coherent, CoherentSettings
from btfl.monitor import Alarm, AlarmLevels, Monitor, Own, calibrate, own_features
from btfl.randomness import generator
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


def from_sums(bundle: Any) -> Own:
    kept = {name: value for name, value in bundle.statistics.items() if not name.endswith("_features")}
    return own_features(type(bundle)(
        bundle.global_head, bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood, statistics=kept
    ), CoherentSettings())  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--no-river", action="store_true")
    chosen = parser.parse_args()
    protocol = Protocol(draws=chosen.draws)
    evaluation = open_run(chosen.run, ("coherent",), None)
    alarms: dict[str, list[tuple[list[int], list[int]]]] = {}
    for number in range(len(evaluation.manifest.clients)):
        base = make_base(evaluation, number)
        bundle = base.clients[RECIPE].bundle
        quiet, drifting = streams(base, protocol)
        owns = {
            "validation": own_features(bundle),
            "training": Own(bundle.statistic("train_features"), "training", 0),
            "sums": from_sums(bundle),
        }
        detectors: dict[str, FirstAlarm] = {}
        for source, own in owns.items():
            calibration = calibrate(Coherent(bundle), own, protocol.warm_up)
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
