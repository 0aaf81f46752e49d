"""Draw every corruption of signals at every severity, for looking at: docs/images/signal-corruptions.png.

Run as ``python benchmarks/signal_sheet.py hapt-windows.npz`` (keys x and y): the picture in the documentation is of UCI
HAPT, a person walking; the three lines are the three axes of acceleration.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from btfl.data.samples import Samples
from btfl.randomness import generator
from btfl.report.style import INK, RC
from btfl.signals.corruptions import SEVERITIES, corrupt_signals, suited
from btfl.signals.types import Signals

SHEET = Path(__file__).parents[1] / "docs" / "images" / "signal-corruptions.png"
AXES, COLOURS = 3, ("#0072b2", "#d55e00", "#009e73")
SEED = 3


def draw(pool: Samples, which: int, path: Path) -> None:
    """Draw one row for each corruption: the window as it is, and the five severities."""
    unit, window = pool.spread, pool.values[[which]]
    names = suited(window.shape[2])
    with pyplot.rc_context(dict(RC)):
        figure, grid = pyplot.subplots(
            len(names), 1 + len(SEVERITIES), figsize=(10, 0.95 * len(names)), sharex=True, sharey="row",
            gridspec_kw={"hspace": 0.12, "wspace": 0.05}, layout="none",
        )  # fmt: skip
        figure.subplots_adjust(left=0.12, right=0.995, top=0.95, bottom=0.02)
        for row, name in zip(grid, names, strict=True):
            # Every severity gets the same draws, so that a row shows one corruption grow.
            levels = [
                corrupt_signals(window, name, level, generator(SEED, "sheet", name), unit.mean, unit.deviation)
                for level in SEVERITIES
            ]
            for cell, version in zip(row, [window, *levels], strict=True):
                _draw_window(cell, version[0])
            row[0].set_ylabel(name.replace("_", " "), rotation=0, ha="right", va="center", color=INK)
        for cell, title in zip(grid[0], ["as it is", *map(str, SEVERITIES)], strict=True):
            cell.set_title(title, fontsize=10, loc="center")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _draw_window(cell: Axes, window: Signals) -> None:
    for axis, colour in zip(range(min(AXES, window.shape[1])), COLOURS, strict=False):
        cell.plot(window[:, axis], color=colour, linewidth=0.9)
    cell.set(xticks=[], yticks=[])
    cell.grid(visible=False)
    for side in cell.spines.values():
        side.set_visible(True)
        side.set_linewidth(0.4)


def main() -> None:
    """Read, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("signals", type=Path, help="npz with x (n x time x channels) and y")
    parser.add_argument("--which", type=int, default=100, help="which of them to show")
    parser.add_argument("--out", type=Path, default=SHEET)
    options = parser.parse_args()
    with np.load(options.signals) as file:
        pool = Samples(file["x"], file["y"])
    draw(pool, options.which, options.out)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
