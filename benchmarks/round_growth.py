"""How the cost of a round grows with the clients: a log-log plot with slopes, and a Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/round_growth.py [--out FILE.png]

Federations of 100 to 100,000 simulated clients with five made-up images of 8x8 each (``many_clients.py``), one process,
in a run folder, so that every round is saved. One line has 1 % of the clients train in each round, as a federation
would; the other has ten of them, however many there are: what those cost who are not asked. What is counted is the
processor time of this process in a round; the least of the rounds after the first, since a busy machine only adds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from many_clients import CLASSES, Enough, made_up
from matplotlib.figure import Figure

from btfl.engines import Event, LocalEngine, train_federation
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.report.style import EXD_COLOUR, IND_COLOUR, RC

CLIENTS = (100, 1_000, 10_000, 100_000)
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "round-growth.png"
ASKED = {"1 % of the clients": 0.01, "ten clients": None}
LOOKS = {
    "1 % of the clients": {"color": EXD_COLOUR, "marker": "o"},
    "ten clients": {"color": IND_COLOUR, "marker": "s", "linestyle": "--"},
}


def seconds_of_rounds(clients: int, share: float, rounds: int) -> list[float]:
    """Return the processor time of each round after the first; the end is left out."""
    data = made_up(clients, "mlp")
    settings = TrainingSettings.for_model("mlp", rounds=rounds + 1, local_epochs=1, participation=share)
    recipe = make_recipe("fedavg", settings, data.source.sample_shape, CLASSES)
    at: list[float] = []

    def report(event: Event) -> None:
        if event.stage != "train":
            raise Enough
        if "seconds" in event.metrics:
            at.append(time.process_time())

    with tempfile.TemporaryDirectory(prefix="btfl-growth-") as folder:
        try:
            train_federation(recipe, data, LocalEngine(1), folder=Path(folder) / "run", report=report)
        except Enough:
            return np.diff(at).tolist()
    raise AssertionError("a federation has an end")


def slopes(seconds: list[float]) -> list[float]:
    """Return the power with which cost grows between neighbours."""
    return [float(one) for one in np.diff(np.log10(seconds)) / np.diff(np.log10(CLIENTS[: len(seconds)]))]


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Draw both lines, with the slope of each part beside it."""
    with mpl.rc_context(dict(RC)):
        figure = Figure(figsize=(6.4, 4.0))
        panel = figure.subplots()
        for name, seconds in found.items():
            panel.loglog(CLIENTS, seconds, label=f"{name} train in a round", **LOOKS[name])
            for place, slope in enumerate(slopes(seconds)):
                middle = (np.sqrt(CLIENTS[place] * CLIENTS[place + 1]), np.sqrt(seconds[place] * seconds[place + 1]))
                told = f"{slope:.2f}".replace("-", "\N{MINUS SIGN}")
                panel.annotate(
                    told, middle, (0, 7), textcoords="offset points", ha="right", fontsize=8, color=LOOKS[name]["color"]
                )
        panel.set(xlabel="clients", ylabel="processor time of a round, s")
        panel.set_xticks(CLIENTS, [f"{count:,}" for count in CLIENTS])
        ticks = [tick for tick in (0.001, 0.01, 0.1, 1.0, 10.0) if tick >= min(map(min, found.values())) / 3]
        panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
        figure.legend(loc="outside lower center", ncols=2)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed ones; one more comes before them")
    parser.add_argument("--out", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    print("| train in a round | clients | asked | s a round, least | slope from the row above |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, share in ASKED.items():
        for clients in CLIENTS:
            each = share or min(10 / clients, 1.0)
            found.setdefault(name, []).append(min(seconds_of_rounds(clients, each, arguments.rounds)))
            slope = f"{slopes(found[name])[-1]:.2f}" if len(found[name]) > 1 else ""
            print(f"| {name} | {clients:,} | {round(each * clients):,} | {found[name][-1]:.3f} | {slope} |", flush=True)
    draw(found, arguments.out)


if __name__ == "__main__":
    main()
