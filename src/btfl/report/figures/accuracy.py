"""Accuracy of every method on every stream; against heterogeneity; for each model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from btfl.report import paper
from btfl.report.accuracy import by_seed, spread, values_of
from btfl.report.groups import Group, is_oracle
from btfl.report.overview import alpha, titles_of
from btfl.report.style import INK
from btfl.report.tables import HEADINGS


def by_stream(group: Group) -> Figure:
    """A panel for each stream and the average: one line a method, the paper's number hollow beside ours."""
    methods = list(group.titles)
    seeds = by_seed(group.rows)
    batches = group.rows.groupby("method")["test_batch"].first()
    figure = Figure(figsize=(9.6, 0.9 + 0.25 * len(methods) + 0.2))
    axes = figure.subplots(1, len(group.columns), sharey=True)
    has_paper = False
    for panel, column in zip(axes, group.columns, strict=True):
        for place, name in enumerate(methods):
            style, values = group.style(name), values_of(seeds, name, column)
            panel.errorbar(
                values.mean(), place, xerr=spread(values), fmt=style.marker, color=style.colour, markersize=6.5,
                capsize=2, elinewidth=1.2,
            )  # fmt: skip
            printed = paper.paper_row(group.first, name, int(batches[name])).get(column)
            if printed is not None:
                has_paper = True
                panel.plot(printed.accuracy, place, "|", color=INK, markersize=11, markeredgewidth=1.3)
        panel.set_title(HEADINGS[column].replace(" ", "\n", 1) if " " in HEADINGS[column] else f"\n{column}")
        panel.set_ylim(len(methods) - 0.4, -0.6)
        panel.margins(x=0.12)
        panel.locator_params(axis="x", nbins=4)
        panel.grid(axis="y", alpha=0.1)
        for place, name in enumerate(methods):
            if is_oracle(name):
                panel.axhline(place - 0.5, color=INK, linewidth=0.8, linestyle=":")
    axes[0].set_yticks(range(len(methods)), [group.titles[name] for name in methods])
    legend = "accuracy (%)" + (";  |  is what the paper printed" if has_paper else "")
    figure.supxlabel(legend, fontsize=9)
    return figure


def by_heterogeneity(series: Sequence[Group]) -> Figure:
    """Accuracy on the synthetical stream as clients grow alike: a line a method."""
    figure = Figure(figsize=(7.6, 4.2))
    panel = figure.subplots()
    for name, title in titles_of(series).items():
        style = series[0].style(name)
        points = []
        for group in series:
            if name in group.titles:
                values = values_of(by_seed(group.rows), name, "synthetical")
                points.append((alpha(group), values.mean(), spread(values) or 0.0))
        x, mean, spreads = np.array(points).T
        panel.errorbar(
            x, mean, yerr=spreads if spreads.any() else None, label=title, linestyle=style.line, capsize=2, **style.edge
        )
    panel.set_xscale("log")
    ticks = sorted({alpha(group) for group in series})
    panel.set_xticks(ticks, [f"{value:g}" for value in ticks])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("Dirichlet α: clients differ  →  clients alike")
    panel.set_ylabel("accuracy on E, synthetical (%)")
    figure.legend(loc="outside right upper")
    return figure


def by_model(groups: Sequence[Group]) -> Figure:
    """The average of the streams, a panel for each model."""
    titles = titles_of(groups)
    figure = Figure(figsize=(2.2 + 2.3 * len(groups), 1.0 + 0.27 * len(titles)))
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for panel, group in zip(axes, groups, strict=True):
        seeds = by_seed(group.rows)
        for place, name in enumerate(titles):
            if name not in group.titles:
                continue
            style, values = group.style(name), values_of(seeds, name, "average")
            panel.errorbar(
                values.mean(), place, xerr=spread(values), fmt=style.marker, color=style.colour, markersize=7, capsize=2
            )
        panel.set_title(str(group.first.experiment["model"]))
        panel.set_ylim(len(titles) - 0.4, -0.6)
        panel.margins(x=0.15)
        panel.locator_params(axis="x", nbins=5)
    axes[0].set_yticks(range(len(titles)), list(titles.values()))
    figure.supxlabel("accuracy, average of the streams (%)", fontsize=9)
    return figure
