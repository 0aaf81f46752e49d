"""Tables over all groups of a report: heterogeneity, models, FedTHE's lambda_s, and where every number comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from btfl.data.streams import STREAMS
from btfl.report.accuracy import values_of
from btfl.report.groups import Group, is_oracle
from btfl.report.table import Row, Table, mark_best, number_cell, text_cell
from btfl.report.tables import HEADINGS, spread_cell

LAMBDA = "lambda_s"
_OF_THE_MODEL = ("model_options", "optimiser", "learning_rate", "momentum", "weight_decay", "augment", "feature_l1")


def by_heterogeneity(groups: Sequence[Group]) -> list[list[Group]]:
    """Find groups that differ in the Dirichlet's alpha alone, in its order."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.first.experiment["partition"] == "dirichlet":
            found.setdefault(group.everything_but("alpha"), []).append(group)
    return [sorted(members, key=alpha) for members in found.values() if len(members) > 1]


def alpha(group: Group) -> float:
    """Return the Dirichlet's parameter."""
    return float(group.first.experiment["alpha"])


def by_number(groups: Sequence[Group]) -> dict[str, list[list[Group]]]:
    """Find, for each numeric setting but alpha, groups that differ in it alone, in its order."""
    names = {name: None for group in groups for name, value in group.settings.items() if _is_number(value)}
    found: dict[str, list[list[Group]]] = {}
    for name in names:
        series: dict[str, list[Group]] = {}
        for group in groups:
            if name != "alpha" and _is_number(group.settings.get(name)):
                series.setdefault(group.everything_but(name), []).append(group)
        several = [members for members in series.values() if len(members) > 1]
        if several:
            found[name] = [sorted(members, key=partial(_value, name)) for members in several]
    return found


def settings_table(name: str, label: str, setting: str, series: Sequence[Group]) -> Table:
    """Average accuracy for each value of a setting."""
    words = setting.replace("_", " ")
    headings = [f"{words} {group.settings[setting]:g}" for group in series]
    return _across(name, f"Average accuracy in % by {words}: {label}", series, "average", headings)


def _value(setting: str, group: Group) -> float:
    return float(group.settings[setting])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def by_model(groups: Sequence[Group]) -> list[list[Group]]:
    """Find groups that differ in the model alone, and in how such a model is trained."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.everything_but("model", *_OF_THE_MODEL), []).append(group)
    return [members for members in found.values() if len({m.first.experiment["model"] for m in members}) > 1]


def streams_of(groups: Sequence[Group]) -> list[str]:
    """Return the streams that any of the groups has."""
    return [stream for stream in STREAMS if any(stream in group.streams for group in groups)]


def titles_of(groups: Sequence[Group]) -> dict[str, str]:
    """Return all methods of several groups by name, the oracle last."""
    pairs = {name: title for group in groups for name, title in group.titles.items()}
    return dict(sorted(pairs.items(), key=lambda pair: is_oracle(pair[0])))


def heterogeneity_table(name: str, label: str, series: Sequence[Group]) -> Table:
    """Accuracy on the synthetical stream against heterogeneity."""
    return _across(
        name, f"Accuracy in % on E (mixed) by heterogeneity: {label}", series, "synthetical",
        [f"Dir({alpha(group):g})" for group in series],
    )  # fmt: skip


def models_table(name: str, label: str, groups: Sequence[Group]) -> Table:
    """Average accuracy for each model."""
    models = [str(group.first.experiment["model"]) for group in groups]
    return _across(name, f"Average accuracy in % of the streams by model: {label}", groups, "average", models)


def lambda_table(groups: Sequence[Group]) -> Table | None:
    """Return the mean of FedTHE's lambda_s by stream."""
    rows, streams = [], streams_of(groups)
    for group in groups:
        for name in group.telling(LAMBDA):
            means = group.samples_of(name).groupby("stream", observed=True)[LAMBDA].mean()
            classes = group.first.record["data"]["classes"]
            cells = [number_cell(float(means.get(stream, math.nan)), 3) for stream in streams]
            rows.append(Row((text_cell(f"{group.titles[name]}: {group.label}"), number_cell(classes, 0), *cells)))
    if not rows:
        return None
    return Table(
        "lambda",
        "FedTHE's λₛ by stream and dataset",
        ("method and runs", "classes", *(HEADINGS[stream] for stream in streams)),
        tuple(rows),
        ("Mean over all samples of the cosine of the two heads' answers; 1: they say the same.",),
        headline=True,
    )


def runs_table(groups: Sequence[Group]) -> Table:
    """Return where every number comes from: run folder, seed, settings and streams."""
    rows = []
    for group in groups:
        for run in group.runs:
            experiment, data, rounds = run.experiment, run.record["data"], run.record["training"]["rounds"]
            words = [
                run.name,
                run.record["run"],
                group.label,
                str(run.seed),
                f"{data.get('clients', experiment['clients'])} clients, {rounds} rounds, {experiment['split']} split",
                f"{data['images']:,} {data.get('kind', 'images')}; other domain: {data['shift'] or 'none'}",
                run.manifest_hash[:16],
            ]
            rows.append(Row(tuple(text_cell(word) for word in words)))
    return Table(
        "runs",
        "Where the numbers come from",
        ("folder", "run", "group", "seed", "federation", "data", "streams (hash)"),
        tuple(rows),
        ("Equal hashes mean equal streams. Settings and whole hashes are below, and in each folder's run.json.",),
        words=True,
    )


def _across(name: str, title: str, groups: Sequence[Group], column: str, headings: Sequence[str]) -> Table:
    seeds = [group.by_seed for group in groups]
    rows = []
    for method, shown in titles_of(groups).items():
        cells = [spread_cell(values_of(table, method, column)) for table in seeds]
        rows.append(Row((text_cell(shown), *cells), is_oracle(method), method))
    return Table(
        name,
        title,
        ("method", *headings),
        mark_best(rows, range(1, len(groups) + 1)),
        (
            "Mean over clients, ± standard deviation over seeds."
            if any(len(group.seeds) > 1 for group in groups)
            else "Mean over clients and seeds.",
        ),
        headline=True,
    )


def shared(series: Sequence[Group]) -> str:
    """Name what several groups have in common."""
    parts = [set(group.label.split(", ")) for group in series]
    return ", ".join(part for part in series[0].label.split(", ") if all(part in other for other in parts))
