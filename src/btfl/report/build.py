"""A report from run folders: one page, the tables in three formats, the figures in two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from btfl.data.manifest import SWITCHING
from btfl.report import figures, formats, overview, tables
from btfl.report.cost import cost_tables
from btfl.report.drawing import Drawing
from btfl.report.groups import Group, group_runs, load_runs
from btfl.report.made_of import made_of
from btfl.report.page import render
from btfl.report.table import Table
from btfl.report.unseen import unseen_table
from btfl.report.verdict import verdict
from btfl.storage import check_inside, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"


@dataclass(frozen=True, eq=False)
class Part:
    """A section of the page: a heading, and tables and figures in the order they are read."""

    name: str
    title: str
    items: tuple[Table | Drawing, ...]

    @property
    def tables(self) -> list[Table]:
        """The tables alone."""
        return [item for item in self.items if isinstance(item, Table)]

    @property
    def drawings(self) -> list[Drawing]:
        """The figures alone."""
        return [item for item in self.items if isinstance(item, Drawing)]


@dataclass(frozen=True, eq=False)
class ReportContents:
    """Everything a report shows: tables and figures in parts, where the runs come from, and what a reader must know."""

    title: str
    groups: list[Group]
    parts: list[Part]
    runs: Table
    notes: list[str]
    verdicts: list[str]
    """What each group has found, in a sentence each."""


@dataclass(frozen=True, eq=False)
class WrittenReport:
    """A report, and where its page is."""

    page: Path
    report: ReportContents


def write_report(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    apart: bool = False,
    title: str | None = None,
    reference: str | None = None,
    extras: Sequence[str] = (),
) -> WrittenReport:
    """Write ``report.html``, ``tables/`` and ``figures/``.

    Parameters
    ----------
    folders : of finished runs; those that differ in seed or draw alone are averaged
    out : the folder to write into
    apart : show streams of different kinds side by side, instead of refusing them
    title : of the page; None: the names of the experiments
    reference : the method to compare with all others; None: BTFL
    extras : columns beside accuracy: ``fairness``, ``calibration``, ``cost``, or single ones (``btfl.report.extras``)

    Example: ``write_report(["runs/demo"], "runs/demo").page``
    """
    groups = group_runs(load_runs(folders), apart=apart, reference=reference, extras=extras)
    return save_report(make_report(groups, title), Path(out))


def save_report(report: ReportContents, out: Path) -> WrittenReport:
    """Write the page, tables and figures of a report into a folder."""
    check_inside(out, "tables", "figures")
    all_tables = [table for part in report.parts for table in part.tables] + [report.runs]
    for table in all_tables:
        for suffix, write in (("md", formats.to_markdown), ("csv", formats.to_csv), ("tex", formats.to_latex)):
            write_atomically(out / "tables" / f"{table.name}.{suffix}", write(table).encode())
    names = [table.name for table in all_tables]
    write_atomically(out / "tables.md", "\n".join(formats.to_markdown(table) for table in all_tables).encode())
    write_atomically(out / "tables.tex", formats.latex_document(names).encode())
    for drawing in (drawing for part in report.parts for drawing in part.drawings):
        write_atomically(out / "figures" / f"{drawing.name}.png", drawing.png)
        write_atomically(out / "figures" / f"{drawing.name}.svg", drawing.svg)
    write_atomically(out / PAGE, render(report).encode())
    return WrittenReport(out / PAGE, report)


def make_report(groups: list[Group], title: str | None = None) -> ReportContents:
    """Compute every table; figures are drawn when they are looked at. The title: the experiments', if none is given."""
    runs = [run for group in groups for run in group.runs]
    names = list(dict.fromkeys(str(run.experiment["name"]) for run in runs))
    bare = [f"{run.name} has no samples: no calibration, and nothing about e." for run in runs if not run.has_samples]
    notes = list(dict.fromkeys([*(note for run in runs for note in run.notes), *bare]))
    parts = [*_across_groups(groups), *(_of_group(group) for group in groups), *_agreement(groups)]
    return ReportContents(
        title or ", ".join(names), groups, parts, overview.runs_table(groups), notes, verdicts_of(groups)
    )


def verdicts_of(groups: Sequence[Group]) -> list[str]:
    """Return what each group has found, by its label if there are several."""
    return [f"{group.label}: {verdict(group)}" if len(groups) > 1 else verdict(group) for group in groups]


def _of_group(group: Group) -> Part:
    return Part(group.file("results"), group.label, tuple(item for item in _items_of(group) if item is not None))


def _items_of(group: Group) -> Iterator[Table | Drawing | None]:
    make = partial(_named, group)
    seeds = f"{len(group.seeds)} seed{'s' * (len(group.seeds) > 1)}"
    yield tables.accuracy_table(group)
    yield make(
        "accuracy", "Accuracy by method and stream",
        f"Mean over clients and {seeds}; whiskers: standard deviation over seeds, where there are several.",
        lambda: figures.accuracy.by_stream(group),
    )  # fmt: skip
    yield from cost_tables(group)
    yield from tables.interval_tables(group)
    yield unseen_table(group)
    yield tables.paper_table(group)
    yield make(
        "clients", "IND against EXD accuracy of each client",
        "Small: clients. Large: a method's mean. The dashed line joins the methods that no other beats in both, "
        "if there are several; the oracle is not counted.",
        lambda: figures.judgement.trade_off(group),
    )  # fmt: skip
    if group.telling("e"):
        yield from _items_about_e(group, make)
    if not group.has_samples:
        return
    yield make(
        "calibration", "Reliability of every method",
        f"Accuracy in bins of confidence, over all {len(group.streams)} streams; larger dots hold more samples. On the "
        "dashed line a method is calibrated; below it, it is overconfident.",
        lambda: figures.judgement.reliability(group),
    )  # fmt: skip
    yield tables.calibration_table(group)


def _items_about_e(group: Group, make: Callable[..., Drawing]) -> Iterator[Table | Drawing | None]:
    alone = "A to D" if len(group.streams) == 5 else "A and C"
    yield make(
        "weights", "Distribution of e on each stream",
        "e is the weight of the global head: near 0 on IND and near 1 on EXD would be right. The last column is "
        f"the mean of {alone}, to compare with E.",
        lambda: figures.weights.distribution(group),
    )  # fmt: skip
    ours = next((name for name in tables.OURS if name in group.titles), None)
    for method in dict.fromkeys([group.reference, ours]):
        if method is not None and method in group.telling("e"):
            yield _stream_drawing(group, method, make)
    yield make(
        "detector", "e as a detector of external samples (ROC)",
        "Mean over clients of the ROC curve; the dashed diagonal is guessing. The areas are in the table.",
        lambda: figures.judgement.detector(group),
    )  # fmt: skip
    yield tables.detection_table(group)


def _stream_drawing(group: Group, method: str, make: Callable[..., Drawing]) -> Drawing:
    run, client = group.first, tables.shown_client(group, method)
    switches = (run.rows["stream"] == SWITCHING).any()
    second = " Right: half of A, all of C, the rest of A; it is no part of any average." if switches else ""
    shown = "e, memory and events" if method in group.telling("a") else "e"
    name = "streams" if method == group.reference else f"streams-{method}"
    return make(
        name, f"{group.titles[method]} along a stream: {shown}",
        f"Client {client} of {run.name}, seed {run.seed} (the client with the median number of samples).{second}",
        lambda: figures.weights.along_streams(group, method),
    )  # fmt: skip


def _across_groups(groups: list[Group]) -> Iterator[Part]:
    for members, name in _numbered("heterogeneity", overview.by_heterogeneity(groups)):
        label = overview.shared(members)
        drawing = Drawing(
            name, f"Accuracy on the synthetical stream against heterogeneity: {label}",
            "The smaller α, the more the clients' label mixes differ.", partial(_by_heterogeneity, members),
            made_of(members),
        )  # fmt: skip
        yield Part(name, f"Heterogeneity: {label}", (overview.heterogeneity_table(name, label, members), drawing))
    for setting, several in overview.by_number(groups).items():
        plain = setting.replace("_", "-").replace(" ", "-")
        for members, name in _numbered(f"by-{plain}", several):
            table = overview.settings_table(name, overview.shared(members), setting, members)
            yield Part(name, f"{setting.replace('_', ' ').capitalize()}: {overview.shared(members)}", (table,))
    for members, name in _numbered("models", overview.by_model(groups)):
        label = overview.shared(members)
        drawing = Drawing(
            name, f"Average accuracy for each model: {label}",
            "Mean over clients and seeds of the streams' average.", partial(_by_model, members), made_of(members),
        )  # fmt: skip
        yield Part(name, f"Models: {label}", (overview.models_table(name, label, members), drawing))


def _by_heterogeneity(members: list[Group]) -> Figure:
    return figures.accuracy.by_heterogeneity(members)


def _by_model(members: list[Group]) -> Figure:
    return figures.accuracy.by_model(members)


def _numbered(name: str, series: list[list[Group]]) -> list[tuple[list[Group], str]]:
    return [(members, name if len(series) == 1 else f"{name}-{i}") for i, members in enumerate(series, start=1)]


def _agreement(groups: list[Group]) -> Iterator[Part]:
    agreement = overview.lambda_table(groups)
    if agreement is not None:
        drawing = Drawing(
            "lambda", "FedTHE's λₛ by stream and dataset",
            "λₛ weighs entropy minimisation against feature alignment in FedTHE.",
            lambda: figures.weights.agreement(groups), made_of(groups),
        )  # fmt: skip
        yield Part("lambda", "FedTHE's λₛ", (agreement, drawing))


def _named(group: Group, name: str, title: str, caption: str, make: Callable[[], Figure]) -> Drawing:
    return Drawing(group.file(name), title, caption, make, made_of([group]))
