"""The picture of the README: a stream that turns external and back, seen by Coherent, BTFL and FedTHE.

Run as ``python benchmarks/turning_stream.py`` with CIFAR-10 in the cache (``btfl data get cifar10``): a minute. Nothing
is trained: the weights are the zoo's. For every client the stream is half of its own test samples, as many of other
clients', and the rest of its own. Shown are means over all clients: the weight of the global head, and the share of
right answers. No client is chosen, and nothing is left out.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import btfl
from btfl.data.manifest import SWITCHING
from btfl.report.drawing import Drawing
from btfl.report.style import EXD_COLOUR, IND_COLOUR, INK, style_of

METHODS = ("coherent", "btfl", "fedthe-on-fedavg")
WINDOW = 25  # samples around each, of which the share of right answers is taken
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "turning-stream.png"


def samples_of(entry: str, folder: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Run the methods on the weights of a zoo entry; return the samples of the stream that turns, and titles."""
    results = btfl.bench(methods=METHODS, start=entry, out=folder)
    samples = results.samples
    turning = samples[samples["stream"] == SWITCHING]
    lengths = turning.groupby(["method", "client"]).size()
    if lengths.nunique() != 1:
        raise SystemExit(f"streams of {entry} differ in length, from {lengths.min()} to {lengths.max()} samples")
    return turning, dict(results.groups[0].titles)


def drawn(turning: pd.DataFrame, titles: dict[str, str]) -> Figure:
    """Draw the weight and the share of right answers along the stream, means over clients."""
    figure = Figure(figsize=(9.6, 3.5))
    weight, right = figure.subplots(1, 2)
    for name in METHODS:
        style, own = style_of(name), turning[turning["method"] == name]
        e, answers = (own.pivot(index="position", columns="client", values=column) for column in ("e", "right"))
        mean = e.mean(axis=1)
        weight.plot(mean.index, mean, color=style.colour, linewidth=0.7, alpha=0.4)
        weight.plot(mean.index, _around(mean, 9), color=style.colour, linestyle=style.line, label=titles[name])
        share = _around(100 * answers.astype(np.float64).mean(axis=1), WINDOW)
        right.plot(share.index, share, color=style.colour, linestyle=style.line)
    external = turning[turning["method"] == METHODS[0]].groupby("position")["external"].first().to_numpy(dtype=int)
    for panel in (weight, right):
        _marked(panel, external)
    weight.plot(
        np.arange(len(external)), external, color=INK, linestyle=":", linewidth=1.2, label="what would be right"
    )
    weight.set_ylabel("weight of the global head")
    right.set_ylabel("right answers (%)")
    right.set_ylim(0, 100)
    weight.set_ylim(-0.03, 1.13)
    figure.legend(*weight.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _around(values: pd.Series[Any], window: int) -> pd.Series[Any]:
    """Return the mean of so many values around each."""
    return values.rolling(window, center=True, min_periods=1).mean()


def _marked(panel: Axes, external: NDArray[np.int64]) -> None:
    """Mark where the stream turns, and say what it holds."""
    turns = [0, *(np.flatnonzero(np.diff(external)) + 1), len(external)]
    for start, end in pairwise(turns):
        kind, colour = ("other clients' samples", EXD_COLOUR) if external[start] else ("own samples", IND_COLOUR)
        panel.axvspan(start, end, color=colour, alpha=0.06, linewidth=0)
        where = panel.get_xaxis_transform()
        panel.text((start + end) / 2, 0.99, kind, transform=where, ha="center", va="top", fontsize=8, color=colour)
    panel.set_xlim(0, len(external))
    panel.set_xlabel("position in the stream (samples)")


def main() -> None:
    """Run, print the means of each part of the stream, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entry", default="zoo:cifar10-cnn-dir0.1-quick", help="trained weights")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the picture, .png or .svg")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        turning, titles = samples_of(typed.entry, Path(folder) / "run")
    for name in METHODS:
        own = turning[turning["method"] == name]
        parts = own.groupby("external")[["e", "right"]].mean()
        print(f"{titles[name]}: right {100 * own['right'].mean():.1f} %, ", end="")
        print(
            ", ".join(
                f"{'other' if kind else 'own'} e {row['e']:.2f} right {100 * row['right']:.1f} %"
                for kind, row in parts.iterrows()
            )
        )
    Drawing("turning-stream", "A stream that turns", "", lambda: drawn(turning, titles)).save(typed.out)


if __name__ == "__main__":
    main()
