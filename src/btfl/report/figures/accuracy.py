"""Accuracy of every method on every stream; against heterogeneity; for each model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from btfl.report import paper
from btfl.report.accuracy import AVERAGE, spread, values_of
from btfl.report.groups import Group, is_oracle
from btfl.report.overview import alpha, titles_of
from btfl.report.style import INK
from btfl.report.table import number
from btfl.report.tables import HEADINGS, ranked

_BESIDE = {"fontsize": 7, "va": "center", "ha": "left"}
"""How a number is written beside its mark: outside the panel, so that it covers nothing."""


def by_stream(group: Group) -> Figure:
    """A panel for each stream and the average, the best method on top: its mark, its number, and what was printed."""
    seeds = group.by_seed
    methods = ranked(group.titles, {name: float(values_of(seeds, name, AVERAGE).mean()) for name in group.titles})
    batches = group.rows.groupby("method")["test_batch"].first()
    figure = Figure(figsize=(10.4, 0.9 + 0.25 * len(methods) + 0.2))
    axes = figure.subplots(1, len(group.columns), sharey=True)
    has_paper = False
    for panel, column in zip(axes, group.columns, strict=True):
        for place, name in enumerate(methods):
            style, values = group.style(name), values_of(seeds, name, column)
            panel.errorbar(
                values.mean(), place, xerr=spread(values), linestyle="", markersize=7.5, capsize=2, elinewidth=1.2,
                **style.on_line,
            )  # fmt: skip
            panel.text(1.03, place, number(values.mean(), 1), transform=panel.get_yaxis_transform(), **_BESIDE)
            printed = paper.paper_row(group.first, name, int(batches[name])).get(column)
            if printed is not None:
                has_paper = True
                panel.plot(printed.accuracy, place, "|", color=INK, markersize=11, markeredgewidth=1.3)
        panel.set_title(HEADINGS[column].replace(" ", "\n", 1) if " " in HEADINGS[column] else f"\n{column}")
        panel.set_ylim(len(methods) - 0.4, -0.6)
        panel.margins(x=0.12)
        panel.locator_params(axis="x", nbins=4, steps=(1, 2, 5, 10))  # no 2.5: labels with a decimal touch
        panel.grid(axis="y", alpha=0.1)
        for place, name in enumerate(methods):
            if is_oracle(name) and not is_oracle(methods[place - 1]):
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
                values = values_of(group.by_seed, name, "synthetical")
                points.append((alpha(group), values.mean(), spread(values) or 0.0))
        x, mean, spreads = np.array(points).T
        panel.errorbar(
            x,
            mean,
            yerr=spreads if spreads.any() else None,
            label=title,
            linestyle=style.line,
            capsize=2,
            **style.on_line,
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
    titles = _best_first(groups)
    figure = Figure(figsize=(2.2 + 2.3 * len(groups), 1.0 + 0.27 * len(titles)))
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for panel, group in zip(axes, groups, strict=True):
        seeds = group.by_seed
        for place, name in enumerate(titles):
            if name not in group.titles:
                continue
            style, values = group.style(name), values_of(seeds, name, "average")
            panel.errorbar(
                values.mean(), place, xerr=spread(values), linestyle="", markersize=7.5, capsize=2, **style.on_line
            )
            panel.text(1.03, place, number(values.mean(), 1), transform=panel.get_yaxis_transform(), **_BESIDE)
        panel.set_title(str(group.first.experiment["model"]))
        panel.set_ylim(len(titles) - 0.4, -0.6)
        panel.margins(x=0.15)
        panel.locator_params(axis="x", nbins=5)
    axes[0].set_yticks(range(len(titles)), list(titles.values()))
    figure.supxlabel("accuracy, average of the streams (%)", fontsize=9)
    return figure


def _best_first(groups: Sequence[Group]) -> dict[str, str]:
    """Return the titles of all methods, by their mean over the groups that have them."""
    titles = titles_of(groups)
    found: dict[str, list[float]] = {name: [] for name in titles}
    for group in groups:
        seeds = group.by_seed
        for name in group.titles:
            found[name].append(float(values_of(seeds, name, AVERAGE).mean()))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return {name: titles[name] for name in ranked(titles, means)}
