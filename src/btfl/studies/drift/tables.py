"""Scenarios and drift detection as tables and figures: ``btfl scenarios`` and ``btfl drift``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from btfl.report.accuracy import paired_bootstrap
from btfl.report.drawing import Drawing
from btfl.report.groups import is_oracle
from btfl.report.style import INK, Style, style_of
from btfl.report.table import Cell, Row, Table, mark_best, number, number_cell, text_cell
from btfl.report.tables import interval_cell

REFERENCE = "coherent"
RATES = (1.0, 0.1)
"""False alarms for 1,000 internal samples at which detectors are compared."""


def scenario_means(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean accuracy in % over clients, with its bootstrap interval: a row for each scenario and method."""
    found = []
    for (scenario, method, batch), part in rows.groupby(["scenario", "method", "test_batch"], sort=False):
        interval = paired_bootstrap([100 * part["accuracy"].to_numpy(dtype=np.float64)])
        found.append(
            {
                "scenario": scenario,
                "method": method,
                "title": part["title"].iloc[0],
                "test_batch": batch,
                "accuracy": interval.difference,
                "low": interval.low,
                "high": interval.high,
                "internal_accuracy": 100 * float(part["internal_accuracy"].mean()),
                "external_accuracy": 100 * float(part["external_accuracy"].mean()),
                "mean_e": float(part["mean_e"].mean()),
                "clients": len(part),
            }
        )
    return pd.DataFrame(found)


def scenario_tables(rows: pd.DataFrame, families: Mapping[str, str]) -> list[Table]:
    """Return accuracy by method and scenario, a table for each family of scenarios; families: by scenario."""
    means = scenario_means(rows).set_index(["method", "scenario"])
    scenarios, titles = list(dict.fromkeys(rows["scenario"])), _titles(rows)
    tables = []
    for family in dict.fromkeys(families[name] for name in scenarios):
        columns = [name for name in scenarios if families[name] == family]
        lines = []
        for method, title in titles.items():
            cells = [_mean_cell(means.loc[(method, column)]) for column in columns]
            lines.append(Row((text_cell(title), *cells), is_oracle(method), method))
        lines = sorted(lines, key=lambda row: row.apart)
        tables.append(
            Table(
                f"scenarios-{family}",
                f"Accuracy in %, {family}",
                ("method", *columns),
                mark_best(lines, range(1, len(columns) + 1)),
                tuple(_scenario_notes(rows)),
            )
        )
    return tables


def difference_table(rows: pd.DataFrame, reference: str = REFERENCE) -> Table | None:
    """Return the reference's accuracy minus that of each other method, paired by client; None without a reference."""
    titles = _titles(rows)
    others = [name for name in titles if name != reference and not is_oracle(name)]
    if reference not in titles or not others:
        return None
    lines = []
    for scenario in dict.fromkeys(rows["scenario"]):
        table = 100 * rows[rows["scenario"] == scenario].pivot_table(
            index="client", columns="method", values="accuracy"
        )
        intervals = [paired_bootstrap([(table[reference] - table[name]).to_numpy(dtype=np.float64)]) for name in others]
        lines.append(Row((text_cell(scenario), *map(interval_cell, intervals))))
    return Table(
        "scenarios-difference",
        f"{titles[reference]} minus each other method, percentage points",
        ("scenario", *(titles[name] for name in others)),
        tuple(lines),
        ("Mean over clients of the paired difference; in brackets its 95 % bootstrap interval over clients.",),
    )


def at_rate(curves: pd.DataFrame, rate: float) -> pd.DataFrame:
    """Return each detector at its most sensitive setting with no more false alarms than this for 1,000 samples."""
    allowed = curves[curves["false_alarms"] <= rate]
    # where several settings have the same rate, the quickest
    ordered = allowed.sort_values(["false_alarms", "delay", "detected"], ascending=[False, True, False], kind="stable")
    return ordered.drop_duplicates("detector").set_index("detector")


def drift_table(curves: pd.DataFrame, rate: float, after: int) -> Table:
    """Return every detector at one rate of false alarms, the quickest first."""
    found = at_rate(curves, rate).sort_values(["delay", "delay_high"], kind="stable")
    rows = [
        Row(
            (
                text_cell(str(row["title"])),
                number_cell(float(row["false_alarms"])),
                number_cell(float(row["drifts"]), 0),
                Cell(f"{100 * float(row['detected']):.0f}", 100 * float(row["detected"])),
                _delay_cell(float(row["delay"]), after),
                Cell(f"{_delay(row['delay_low'], after)} to {_delay(row['delay_high'], after)}"),
            )
        )
        for _, row in found.iterrows()
    ]
    missing = sorted(set(curves["title"]) - set(found["title"]))
    return Table(
        f"drift-{rate:g}".replace(".", "-"),
        f"Detection at a false-alarm rate of at most {rate:g} in 1,000 internal samples",
        ("detector", "false alarms", "drifts", "found %", "median delay", "95 % interval"),
        tuple(rows),
        (
            "Drifts: those with no alarm before them. Delay in samples after the first external one, missed drifts "
            "counted as longer than the stream; the interval is a bootstrap over clients.",
            *([f"Never so few false alarms at any setting tried: {', '.join(missing)}."] if missing else []),
        ),
    )


def drift_drawing(curves: pd.DataFrame, after: int) -> Drawing:
    """Draw delay against false alarms, a panel for each family of detectors; ours is in each of them."""
    return Drawing(
        "drift",
        "Delay of detection against false alarms",
        "Median delay until a drift from IND to EXD is detected, against the rate of false alarms, as the threshold of "
        f"each detector is varied, as long as half of the drifts have no alarm before them. A delay of {after} samples "
        "means that half of the drifts are missed. Grey: the coherent method, for comparison.",
        lambda: _drift_figure(curves, after),
    )


def _drift_figure(curves: pd.DataFrame, after: int) -> Figure:
    families = list(dict.fromkeys(curves["family"]))
    columns = min(len(families), 3)
    lines = -(-len(families) // columns)
    figure = Figure(figsize=(0.8 + 3.2 * columns, 0.3 + 3.3 * lines))
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for panel in axes.flat[len(families) :]:
        panel.set_visible(False)
    for panel, family in zip(axes.flat, families, strict=False):
        names = list(dict.fromkeys(curves.loc[curves["family"] == family, "detector"]))
        for reference in ("regime", "coherent-e"):
            if reference not in names and reference in set(curves["detector"]):
                _curve(panel, curves, reference, Style("#b0b0b0", "", _STYLES[reference].line))
        for name in names:
            _curve(panel, curves, name, _detector_style(name))
        panel.axhline(after, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        panel.set_title(family)
        panel.set_xscale("log")
        panel.set_yscale("symlog", linthresh=1)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.tick_params(labelbottom=True)  # the panel below may be empty
        panel.set_ylim(0, 1.6 * after)
        panel.set_yticks([0, 1, 10, 100, after], ["0", "1", "10", "100", f"{after}"])
        panel.legend(loc="lower left", fontsize=7, handlelength=2.4, labelspacing=0.25)
    figure.supxlabel("false alarms for 1,000 internal samples", fontsize=9)
    figure.supylabel("median delay (samples)", fontsize=9)
    return figure


_STYLES = {
    "regime": style_of("coherent"),
    "coherent-e": Style(style_of("coherent").colour, "o", (0, (5, 2))),
    "cusum": Style("#009e73", "D"),
    "btfl-memory": style_of("btfl"),
    "btfl-e": Style(style_of("btfl").colour, "v", (0, (5, 2))),
    "ks-window": Style("#0072b2", "s"),
    "mmd-window": Style("#b07d00", "^"),
}
_BY_SIGNAL = {
    "confidence": Style(INK, "s"),
    "entropy": Style("#0072b2", "^"),
    "distance": Style("#b07d00", "v"),
    "evidence": Style("#d55e00", "o"),
}


def _detector_style(name: str) -> Style:
    return _STYLES.get(name) or _BY_SIGNAL[name.rpartition("-")[2]]


def _curve(panel: object, curves: pd.DataFrame, name: str, style: Style) -> None:
    points = curves[(curves["detector"] == name) & (curves["false_alarms"] > 0)]
    points = points[points["drifts"] >= curves["drifts"].max() / 2]
    points = points.drop_duplicates(["false_alarms", "delay"]).sort_values("false_alarms")
    title = str(curves.loc[curves["detector"] == name, "title"].iloc[0])
    panel.plot(  # type: ignore[attr-defined]
        points["false_alarms"],
        points["delay"],
        linestyle=style.line,
        markevery=max(len(points) // 8, 1),
        markersize=4,
        label=title if style.marker else f"({title})",
        **style.on_line,
    )


def _titles(rows: pd.DataFrame) -> dict[str, str]:
    return dict(zip(rows["method"], rows["title"], strict=True))


def _mean_cell(row: pd.Series) -> Cell:
    mean, low, high = (float(row[name]) for name in ("accuracy", "low", "high"))
    return Cell(f"{number(mean, 1)} ({number(low, 1)} to {number(high, 1)})", mean, parts={"low": low, "high": high})


def _delay(value: float, after: int) -> str:
    return f"> {after - 1}" if value >= after else number(value, 0)


def _delay_cell(value: float, after: int) -> Cell:
    return Cell(_delay(value, after), value)


def _scenario_notes(rows: pd.DataFrame) -> Sequence[str]:
    lengths, clients = sorted(set(rows["samples"])), rows["client"].nunique()
    notes = [
        f"Mean over {clients} clients, each counting the same; in brackets its 95 % bootstrap interval over clients.",
        f"Streams of {', '.join(map(str, lengths))} samples, {', '.join(map(str, sorted(set(rows['test_batch']))))} at "
        "a time; samples are drawn again, in a new order, when a client's pool is used up.",
    ]
    if any(is_oracle(name) for name in rows["method"]):
        notes.append("The oracle is told the answers; it is a ceiling, set apart and not ranked.")
    return notes
