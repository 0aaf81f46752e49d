"""What runs have found, for Python and notebooks: the numbers, the tables, the figures, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Self

import pandas as pd

from btfl.errors import UnknownNameError, listed
from btfl.report.build import ReportContents, make_report, save_report
from btfl.report.drawing import Drawing
from btfl.report.extras import chosen
from btfl.report.groups import Group, group_runs, load_runs
from btfl.report.table import Table
from btfl.runs.saved import SavedRun


class Results:
    """Finished runs, read from their folders. A notebook shows the verdict and the main tables.

    Parameters
    ----------
    groups : the runs; those that differ in seed or draw alone are averaged
    folder : where the report goes if nobody says

    Examples
    --------
    >>> results = btfl.bench("demo", seeds=[0, 1, 2])          # doctest: +SKIP
    >>> results.frame.groupby("title")["accuracy"].mean()      # doctest: +SKIP
    >>> print(results.table(columns=["fairness"]))             # doctest: +SKIP
    """

    def __init__(self, groups: Sequence[Group], folder: Path) -> None:
        self.groups, self.folder = list(groups), folder

    @classmethod
    def load(
        cls,
        *folders: str | Path,
        reference: str | None = None,
        columns: Sequence[str] = (),
        folder: str | Path | None = None,
    ) -> Self:
        """Read finished runs, or folders that hold some.

        Parameters
        ----------
        folders : of runs; those of several kinds of streams stand side by side
        reference : the method to compare with all others; None: BTFL
        columns : beside accuracy: ``fairness``, ``calibration``, ``cost``, or single ones (``btfl.report.extras``)
        folder : where the report goes; None: the first of the folders
        """
        groups = group_runs(load_runs(folders), apart=True, reference=reference, extras=columns)
        return cls(groups, Path(folder if folder is not None else folders[0]))

    @property
    def runs(self) -> list[SavedRun]:
        """The runs, in the order of the groups."""
        return [run for group in self.groups for run in group.runs]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Accuracy by run, method, client and stream (docs/results.md), with the group's label as ``group``.

        The streams of the benchmark only, so that it can be averaged as it is.
        """
        return pd.concat([group.rows.assign(group=group.label) for group in self.groups], ignore_index=True)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every sample of every stream, the switching one included (docs/results.md)."""
        return pd.concat([group.samples.assign(group=group.label) for group in self.groups], ignore_index=True)

    @cached_property
    def contents(self) -> ReportContents:
        """All tables and figures; a figure is drawn when it is looked at."""
        return make_report(self.groups)

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables by name, in the order of the page."""
        parts = self.contents.parts
        return {
            table.name: table for table in [*(table for part in parts for table in part.tables), self.contents.runs]
        }

    @property
    def figures(self) -> Mapping[str, Drawing]:
        """The figures by name, in the order of the page."""
        return {drawing.name: drawing for part in self.contents.parts for drawing in part.drawings}

    def table(self, name: str | None = None, *, columns: Sequence[str] = (), reference: str | None = None) -> Table:
        """Return a table: the main one if none is named.

        Parameters
        ----------
        name : ``accuracy``, ``difference``, ``calibration``, ...; see ``tables``
        columns : beside accuracy: ``fairness``, ``calibration``, ``cost``, or single ones (``btfl.report.extras``)
        reference : the method that is compared with all others, in the table ``difference``
        """
        if columns or reference is not None:
            return self.seen(columns=columns, reference=reference).table(name)
        tables = self.tables
        headlines = [table for table in tables.values() if table.headline]
        return headlines[0] if name is None else tables[_found("table", name, tables)]

    def plot(self, name: str | None = None) -> Drawing:
        """Return a figure, which a notebook shows: accuracy if none is named; ``figures`` has all names.

        ``plot("streams")`` is e along a stream; ``.figure()`` of it is matplotlib's, ``.save("file.png")`` writes it.
        """
        figures = self.figures
        return next(iter(figures.values())) if name is None else figures[_found("figure", name, figures)]

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page with all tables and figures into a folder, and return the page's path."""
        return save_report(self.contents, self.folder if out is None else Path(out)).page

    def seen(self, *, columns: Sequence[str] = (), reference: str | None = None) -> Results:
        """Return the same results with other columns and another method to compare with."""
        extras = chosen(columns)
        if reference is None:
            return Results([replace(group, extras=extras or group.extras) for group in self.groups], self.folder)
        groups = group_runs(self.runs, apart=True, reference=reference, extras=extras or self.groups[0].extras)
        return Results(groups, self.folder)

    @property
    def verdict(self) -> str:
        """What was found, in a sentence for each group."""
        return "\n".join(self.contents.verdicts)

    @property
    def notes(self) -> list[str]:
        """What a reader must know, such as which methods were left out."""
        return self.contents.notes

    def __repr__(self) -> str:
        methods = list(dict.fromkeys(title for group in self.groups for title in group.titles.values()))
        seeds = sorted({run.seed for run in self.runs})
        over = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        labels = "; ".join(group.label for group in self.groups)
        return f"Results({labels}: {listed(methods, 20)}; {over}; in {self.folder})\n{self.verdict}"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(said)}</b></p>" for said in self.contents.verdicts]
        parts += [f"<p>note: {escape(note)}</p>" for note in self.notes]
        parts += [table.html() for table in self.tables.values() if table.headline and table.name != "lambda"]
        return "\n".join(parts)


def _found(kind: str, name: str, known: Mapping[str, object]) -> str:
    """Return the name, or the first that begins with it: where there are several groups, names end in theirs."""
    if name in known:
        return name
    inside = [each for each in known if each.startswith(f"{name}-")]
    if not inside:
        raise UnknownNameError(kind, name, known)
    return inside[0]
