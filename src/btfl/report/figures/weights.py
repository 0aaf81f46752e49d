"""The weight of the global head: how it is distributed, how it moves along a stream; and FedTHE's lambda_s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from btfl.data.manifest import SWITCHING
from btfl.data.streams import LETTERS, STREAMS
from btfl.report.groups import Group
from btfl.report.overview import LAMBDA, streams_of
from btfl.report.style import EXD_COLOUR, IND_COLOUR, INK, style_of
from btfl.report.tables import HEADINGS, shown_client, stream_name

BINS = np.linspace(0.0, 1.0, 21)
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
_WINDOW = 15
_FEW_TURNS = 8


def distribution(group: Group) -> Figure:
    """Histograms of e: a column for each stream, and last what E would be if its four parts were seen alone."""
    methods = group.telling("e")
    alone = [stream for stream in group.streams if stream != STREAMS[4]]
    last = "mean of\nA to D" if len(alone) == 4 else f"mean of\n{' and '.join(LETTERS[stream] for stream in alone)}"
    parts = [*group.streams, last]
    figure = Figure(figsize=(9.8, 0.9 + 1.25 * len(methods)))
    axes = figure.subplots(len(methods), len(parts), sharex=True, sharey="row", squeeze=False)
    for line, name in zip(axes, methods, strict=True):
        samples = group.samples_of(name)
        shares = {stream: _shares(samples.loc[samples["stream"] == stream, "e"]) for stream in group.streams}
        shares[last] = np.mean([shares[stream] for stream in alone], axis=0)
        for panel, part in zip(line, parts, strict=True):
            panel.stairs(shares[part], BINS, fill=True, color=group.style(name).colour, alpha=0.55)
            panel.stairs(shares[part], BINS, color=group.style(name).colour, linewidth=1.0)
            panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            panel.set_xlim(0, 1)
            panel.set_xticks([0, 0.5, 1], ["0", "½", "1"])
        line[0].set_ylabel(group.titles[name].replace(" (", "\n("), rotation=0, ha="right", va="center")
    for panel, part in zip(axes[0], parts, strict=True):
        panel.set_title(HEADINGS[part].replace(" ", "\n", 1) if part in HEADINGS else part)
    figure.supxlabel("e, weight of the global head", fontsize=9)
    figure.supylabel("share of samples", fontsize=9)
    return figure


def agreement(groups: Sequence[Group]) -> Figure:
    """FedTHE's lambda_s by stream, a bar for each dataset or run."""
    bars: list[tuple[str, pd.Series[Any]]] = []
    streams = streams_of(groups)
    for group in groups:
        for name in group.telling(LAMBDA)[:1]:
            of_method = group.samples_of(name)
            bars.append((group.label, of_method.groupby("stream", observed=True)[LAMBDA].mean().reindex(streams)))
    figure = Figure(figsize=(7.6, 3.4 + 0.2 * len(bars)))
    panel = figure.subplots()
    width = 0.8 / len(bars)
    for i, (label, values) in enumerate(bars):
        places = np.arange(len(streams)) + (i - (len(bars) - 1) / 2) * width
        fill = to_rgba(style_of("fedthe").colour, (0.85, 0.5, 0.15)[i % 3])  # one method, so one colour
        hatch = _HATCHES[i % len(_HATCHES)]
        drawn = panel.bar(
            places, values, width * 0.92, label=label, facecolor=fill, edgecolor=INK, linewidth=0.6, hatch=hatch
        )
        if len(bars) <= 3:
            panel.bar_label(drawn, fmt="%.2f", padding=2, fontsize=7.5)
    panel.set_xticks(range(len(streams)), [HEADINGS[stream] for stream in streams])
    panel.set_ylim(0, 1.05)
    panel.set_ylabel("mean λₛ (cosine of the heads' answers)")
    panel.grid(axis="x", alpha=0)
    figure.legend(loc="outside lower center")
    return figure


def along_streams(group: Group, method: str) -> Figure:
    """e, the memory and the events, sample after sample: on the mixed stream, and on one that switches and back."""
    client = shown_client(group, method)
    samples = group.first.samples_of(method)
    own = samples[samples["client"] == client].sort_values("position")
    streams = [name for name in (STREAMS[4], SWITCHING) if (own["stream"] == name).any()]
    titles = ["IND, then EXD, then IND again" if name == SWITCHING else stream_name(name) for name in streams]
    return draw_streams([own[own["stream"] == name] for name in streams], titles)


def draw_streams(streams: Sequence[pd.DataFrame], titles: Sequence[str]) -> Figure:
    """Draw e along streams, a column each; with the memory and the events of methods that have them.

    Parameters
    ----------
    streams : columns ``position`` and ``e``; ``external``, if it is known which samples are; ``a``, ``b``, ``event``
    titles : of the streams
    """
    own = pd.concat(streams)
    has_memory = "a" in own and own["a"].notna().any()
    heights = [2.4, 1.3, 0.7] if has_memory else [2.4]
    figure = Figure(figsize=(9.6, 1.0 + 1.15 * sum(heights) * (1 if has_memory else 1.2)))
    axes = figure.subplots(len(heights), len(streams), sharex="col", sharey="row", squeeze=False, height_ratios=heights)
    for number, (part, title) in enumerate(zip(streams, titles, strict=True)):
        _weight_panel(axes[0, number], part)
        axes[0, number].set_title(title)
        if has_memory:
            _memory_panels(axes[1, number], axes[2, number], part)
        axes[-1, number].set_xlabel("position in the stream (samples)")
    axes[0, 0].set_ylabel("e, weight of\nthe global head")
    if has_memory:
        axes[1, 0].set_ylabel("Beta\nparameters")
        axes[1, 0].set_ylim(0, 1.08 * float(own[["a", "b"]].max().max()))  # shared by the row
        axes[2, 0].set_ylabel("event", labelpad=2)
    handles, labels = [], []
    for panel in axes[:, 0]:
        found = panel.get_legend_handles_labels()
        handles += found[0]
        labels += found[1]
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


def _shares(values: pd.Series[Any]) -> Any:
    counts, _ = np.histogram(values.to_numpy(dtype=np.float64), BINS)
    return counts / max(len(values), 1)


def _weight_panel(panel: Axes, part: pd.DataFrame) -> None:
    position, e = part["position"].to_numpy(), part["e"].to_numpy()
    for rows, marker, face, edge, label in _kinds(part):
        panel.scatter(
            position[rows], e[rows], s=20, linewidths=0.9, marker=marker, facecolors=face, edgecolors=edge, label=label
        )
    running = part["e"].rolling(_WINDOW, center=True, min_periods=1).mean()
    panel.plot(position, running, color=INK, linewidth=1.4, label=f"mean of {_WINDOW} around")
    if "external" in part:
        turns = np.flatnonzero(np.diff(part["external"].to_numpy(dtype=int))) + 0.5
        for turn in turns if len(turns) <= _FEW_TURNS else ():  # a mixed stream turns all the time
            panel.axvline(turn, color=INK, linestyle="--", linewidth=0.9)
    panel.set_ylim(-0.04, 1.04)


def _kinds(part: pd.DataFrame) -> list[tuple[NDArray[np.bool_], str, str, str, str]]:
    """Return how samples are drawn: which, marker, face, edge and label; all alike if it is not known which are EXD."""
    if "external" not in part:
        return [(np.ones(len(part), dtype=bool), "o", "none", IND_COLOUR, "sample")]
    external = part["external"].to_numpy(dtype=bool)
    return [
        (~external, "o", "none", IND_COLOUR, "IND sample"),
        (external, "^", EXD_COLOUR, EXD_COLOUR, "EXD sample"),
    ]


def _memory_panels(memory: Axes, events: Axes, part: pd.DataFrame) -> None:
    position = part["position"].to_numpy()
    memory.step(position, part["a"], where="post", color=EXD_COLOUR, label="a (EXD events)")
    memory.step(position, part["b"], where="post", color=IND_COLOUR, linestyle=(0, (4, 1.5)), label="b (IND events)")
    event = part["event"].to_numpy()
    for sign, colour in ((1, EXD_COLOUR), (-1, IND_COLOUR)):
        events.vlines(position[event == sign], 0, sign, color=colour, linewidth=1.5)
    events.axhline(0, color=INK, linewidth=0.6)
    events.set_ylim(-1.3, 1.3)
    events.set_yticks([-1, 1], ["IND", "EXD"])
    events.grid(visible=False)
