"""Our method minus every other one on all federations: a panel a method, a line a federation."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from btfl.report.federations import Difference, Federation
from btfl.report.style import EXD_COLOUR, IND_COLOUR, INK

_ACROSS = 8  # panels in a line
_COLOURS = {"better": IND_COLOUR, "not clear": "#8a8f98", "worse": EXD_COLOUR}
_LEAST = -2.5  # points that every panel shows of where ours loses


def of_all_federations(federations: Sequence[Federation]) -> Figure:
    """Draw ours minus each method: filled marks for the newest version, hollow ones for the one before.

    Methods that were run on more federations come first. Letters on the right of a panel are streams on which ours is
    clearly worse, whatever the average.
    """
    compared = [one for one in federations if one.differences]
    by_method: dict[str, dict[str, Difference]] = {}
    for one in compared:
        for found in one.differences:
            by_method.setdefault(found.method, {})[one.name] = found
    methods = sorted(by_method, key=lambda name: (-len(by_method[name]), name))
    lines = [methods[start : start + _ACROSS] for start in range(0, len(methods), _ACROSS)]
    shown = [[one for one in compared if any(one.name in by_method[name] for name in line)] for line in lines]
    heights = [len(there) + 3.0 for there in shown]
    figure = Figure(figsize=(15.5, 0.9 + 0.19 * sum(heights)))
    axes = figure.subplots(len(lines), _ACROSS, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, there, panels in zip(lines, shown, axes, strict=True):
        for panel in panels[len(line) :]:
            panel.set_axis_off()
        for method, panel in zip(line, panels, strict=False):
            _panel(panel, by_method[method], there)
        for panel in panels[1 : len(line)]:
            panel.set_yticklabels([])
    newest = max(one.version for one in compared)
    figure.supxlabel(
        f"Coherent minus the method, average of the streams, in points, with 95 % intervals over clients and seeds.\n"
        f"Filled marks: its version {newest}, hollow ones: version {newest - 1}.  Blue: better, grey: not clear, "
        "orange: worse.  Shaded: where it loses.  Letters: streams on which it is clearly worse.",
        fontsize=9,
    )
    return figure


def _panel(panel: Axes, of: dict[str, Difference], there: Sequence[Federation]) -> None:
    newest = max(one.version for one in there)
    for place, one in enumerate(there):
        found = of.get(one.name)
        if found is None:
            continue
        average, colour = found.average, _COLOURS[found.verdict]
        panel.plot([average.low, average.high], [place, place], color=colour, linewidth=1.3)
        face = colour if one.version == newest else "white"
        panel.plot(average.difference, place, "o", markersize=4.5, markerfacecolor=face, markeredgecolor=colour)
        if found.lost:
            where = panel.get_yaxis_transform()
            panel.text(1.02, place, found.lost, transform=where, color=EXD_COLOUR, fontsize=7.5, va="center")
    title = next(iter(of.values())).title
    panel.set_title(title.replace(" (", "\n(").replace(" on ", "\non "), fontsize=9)
    low, high = min(panel.get_xlim()[0], _LEAST), max(panel.get_xlim()[1], 1.0)
    panel.set_xlim(low, high + 0.05 * (high - low))
    panel.axvspan(low, 0, color=EXD_COLOUR, alpha=0.08, linewidth=0)
    panel.axvline(0, color=INK, linewidth=0.9)
    panel.set_ylim(len(there) - 0.4, -0.6)
    panel.set_yticks(range(len(there)), [f"{one.name} ({one.version})" for one in there], fontsize=8)
    panel.locator_params(axis="x", nbins=4)
    panel.grid(axis="y", alpha=0.1)
