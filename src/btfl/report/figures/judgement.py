"""How far a method can be trusted: calibration, IND against EXD for each client, and e as a detector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from btfl.data.streams import LETTERS
from btfl.report import calibration, detection
from btfl.report.accuracy import values_of
from btfl.report.groups import Group, is_oracle
from btfl.report.style import INK

_CROWD = 16  # more methods than this hide one another's clients
_LEGEND_LINES = 22  # that fit beside the figure


def reliability(group: Group) -> Figure:
    """A panel for each method: accuracy against confidence, on the diagonal if it is calibrated."""
    methods = list(group.titles)
    lines = math.ceil(len(methods) / 5)
    columns = math.ceil(len(methods) / lines)
    figure = Figure(figsize=(0.6 + 1.85 * columns, 0.6 + 2.25 * lines))
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for panel in axes.flat[len(methods) :]:
        panel.set_visible(False)
    for panel, name in zip(axes.flat, methods, strict=False):
        samples, style = group.samples_of(name), group.style(name)
        samples = samples[samples["stream"].isin(group.streams)]
        found = calibration.reliability(samples["confidence"].to_numpy(), samples["right"].to_numpy(dtype=bool))
        panel.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        panel.vlines(found.confidence, found.confidence, found.accuracy, color=style.colour, linewidth=3, alpha=0.35)
        panel.plot(found.confidence, found.accuracy, color=style.colour, linewidth=1.0)
        panel.scatter(found.confidence, found.accuracy, s=8 + 90 * found.share, **style.scattered)
        panel.set_title(f"{group.titles[name]}\nECE {found.error:.1%}".replace("%", " %"), fontsize=8.5)
        panel.set_xlim(0, 1.03)
        panel.set_ylim(0, 1.03)
        panel.set_box_aspect(1)
        panel.set_xticks([0, 0.5, 1])
        panel.set_yticks([0, 0.5, 1])
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    figure.supxlabel("confidence (%)", fontsize=9)
    figure.supylabel("accuracy (%)", fontsize=9)
    return figure


def trade_off(group: Group) -> Figure:
    """IND accuracy against EXD accuracy: every client small, every method's mean large, and the Pareto front.

    A front of one method is no line. With many methods, single clients are drawn for those at the front alone: others
    would hide them.
    """
    internal_streams, external_streams = (
        [stream for stream in group.streams if stream.endswith(kind)] for kind in ("_ind", "_exd")
    )
    table = group.by_client.assign(
        internal=group.by_client[internal_streams].mean(axis=1), external=group.by_client[external_streams].mean(axis=1)
    )
    points = {name: (values_of(table, name, "internal"), values_of(table, name, "external")) for name in group.titles}
    means = {name: (float(internal.mean()), float(external.mean())) for name, (internal, external) in points.items()}
    front = pareto_front([point for name, point in means.items() if not is_oracle(name)])
    crowded = len(means) > _CROWD
    columns = math.ceil((len(means) + 2) / _LEGEND_LINES)
    figure = Figure(figsize=(6.0 + 2.2 * columns, 4.9))
    panel = figure.subplots()
    handles = []
    for name, mean in means.items():
        style = group.style(name)
        if not crowded or mean in front:
            panel.scatter(*points[name], s=14, alpha=0.4, **style.scattered)
        panel.scatter(*mean, s=110, zorder=4, **style.scattered)
        handles.append(Line2D([], [], linestyle="", markersize=7.5, label=group.titles[name], **style.on_line))
    if len(front) > 1:
        dashed: dict[str, Any] = {"color": INK, "linewidth": 1.1, "linestyle": (0, (4, 2))}
        panel.plot(*zip(*front, strict=True), zorder=3, **dashed)
        handles.append(Line2D([], [], label="Pareto front", **dashed))
    one = "one client, at the front" if crowded else "one client"
    handles.append(Line2D([], [], color="#7f7f7f", marker="o", markersize=3.5, alpha=0.5, linestyle="", label=one))
    panel.set_xlabel(f"IND accuracy, {_mean_of(internal_streams)} (%)")
    panel.set_ylabel(f"EXD accuracy, {_mean_of(external_streams)} (%)")
    figure.legend(handles=handles, loc="outside right upper", ncols=columns)
    return figure


def _mean_of(streams: Sequence[str]) -> str:
    letters = [LETTERS[stream] for stream in streams]
    return f"mean of {' and '.join(letters)}" if len(letters) > 1 else f"on {letters[0]}"


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats in both, from left to right."""
    return sorted(
        point
        for point in set(points)
        if not any(other != point and other[0] >= point[0] and other[1] >= point[1] for other in points)
    )


def detector(group: Group) -> Figure:
    """ROC curves of e, a panel for each pair of internal and external samples."""
    figure = Figure(figsize=(9.2, 4.1))
    pairs = detection.pairs_in(group.streams)
    axes = figure.subplots(1, len(pairs), sharex=True, sharey=True)
    for panel, pair in zip(axes, pairs, strict=True):
        panel.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        for name in group.telling("e"):
            style = group.style(name)
            curve = detection.mean_roc(group.samples_of(name), pair)
            panel.plot(
                np.append(0, detection.GRID),
                np.append(0, curve),
                linestyle=style.line,
                markevery=(7, 20),
                label=group.titles[name],
                **style.on_line,
            )
        panel.set_title(pair)
        panel.set_box_aspect(1)
        panel.set_xticks(np.linspace(0, 1, 3))
        panel.set_yticks(np.linspace(0, 1, 3))
        panel.set_xlabel("share of IND samples flagged")
    axes[0].set_ylabel("share of EXD samples found")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure
