"""Our method minus every other one on all federations that results are kept of: where it wins and where it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from btfl.data.streams import LETTERS
from btfl.errors import InputError
from btfl.report.accuracy import AVERAGE, LEVEL, Interval, compare_in
from btfl.report.groups import Group, group_runs, is_oracle, load_runs, runs_in
from btfl.report.table import MISSING, Cell, Row, Table, number_cell, text_cell
from btfl.report.tables import OURS, interval_cell
from btfl.runs.layout import RunFiles

NAME = "all-federations"
_USUAL = ("btfl", "fedthe", "fedthe-on-fedavg")
"""Methods that have a column of their own in the short table."""


@dataclass(frozen=True)
class Difference:
    """Ours minus another method on one federation."""

    method: str
    title: str
    by_column: dict[str, Interval]

    @property
    def average(self) -> Interval:
        """Of the average over the streams."""
        return self.by_column[AVERAGE]

    @property
    def verdict(self) -> str:
        """Whether ours is better, by the interval of the average."""
        return "better" if self.average.low > 0 else "worse" if self.average.high < 0 else "not clear"

    @property
    def lost(self) -> str:
        """Letters of the streams on which ours is clearly worse, such as ``BD``."""
        return "".join(LETTERS[name] for name, found in self.by_column.items() if name != AVERAGE and found.high < 0)


@dataclass(frozen=True, eq=False)
class Federation:
    """Results on the same streams of clients that were trained alike, from one folder or several.

    Parameters
    ----------
    folders : names of the folders, the shortest first
    groups : what is in each; where two have the same method, the first one's rows count
    """

    folders: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def name(self) -> str:
        """That of its first folder."""
        return self.folders[0]

    @cached_property
    def titles(self) -> dict[str, str]:
        """Titles of all methods by name; settings of a method are no other method, and ceilings are none."""
        pairs = {name: title for group in reversed(self.groups) for name, title in group.titles.items()}
        return {name: title for name, title in pairs.items() if "[" not in name and not is_oracle(name)}

    @cached_property
    def by_client(self) -> pd.DataFrame:
        """Accuracy in % by method, seed and client, of all methods."""
        parts, known = [], set[str]()
        for group in self.groups:
            table = group.by_client
            new = table.index.get_level_values("method").isin([name for name in self.titles if name not in known])
            parts.append(table[new])
            known |= set(group.titles)
        return pd.concat(parts)

    @property
    def ours(self) -> str | None:
        """The newest version of ours that was run here; None: none was."""
        return next((name for name in OURS if name in self.titles), None)

    @property
    def version(self) -> int:
        """Which version of ours that is; 0: none."""
        return 0 if self.ours is None else len(OURS) - OURS.index(self.ours)

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({seed for group in self.groups for seed in group.seeds})

    @property
    def clients(self) -> int:
        """How many clients there are with one seed."""
        return int(self.groups[0].rows["client"].nunique())

    @cached_property
    def differences(self) -> list[Difference]:
        """Ours minus each other method, what comes closest or is better first."""
        if self.ours is None:
            return []
        found = [
            Difference(name, title, compare_in(self.by_client, self.ours, name))
            for name, title in self.titles.items()
            if name != self.ours
        ]
        return sorted(found, key=lambda one: (one.average.difference, one.method))


def read_federations(folder: str | Path) -> list[Federation]:
    """Return the federations of all result folders in a folder: by version of ours, the newest first, then by name.

    Folders are one federation if their streams have the same hashes and their clients were trained alike, or if one has
    nothing but methods of others.
    """
    kept = [place for place in sorted(Path(folder).glob("*/")) if runs_in(place) != [place] or _is_run(place)]
    if not kept:
        raise InputError(f"{folder} holds no folder with results of `btfl bench`")
    alike: list[list[tuple[str, Group]]] = []
    for place in kept:
        for group in group_runs(load_runs([place]), apart=True):
            same = next((members for members in alike if _are_one(members[0][1], group)), None)
            if same is None:
                alike.append([(place.name, group)])
            else:
                same.append((place.name, group))
    found = []
    for members in alike:
        newest_first = sorted(members, key=lambda one: min(map(_age, one[1].titles)))
        names = dict.fromkeys(name for name, _ in sorted(members, key=lambda one: (len(one[0]), one[0])))
        found.append(Federation(tuple(names), tuple(group for _, group in newest_first)))
    return sorted(found, key=lambda federation: (-federation.version, federation.name))


def short_table(federations: Sequence[Federation]) -> Table:
    """A row for each federation: ours minus BTFL, FedTHE and the best other method, and where it loses."""
    rows = []
    for one in federations:
        if one.ours is None:
            continue
        of = {found.method: found for found in one.differences}
        others = [found for found in one.differences if found.method not in OURS]
        usual = [interval_cell(of[name].average) if name in of else text_cell(MISSING) for name in _USUAL]
        said = [sum(found.verdict == verdict for found in others) for verdict in ("better", "not clear", "worse")]
        rows.append(
            Row(
                (
                    text_cell(one.name),
                    Cell(str(one.version), one.version),
                    Cell(f"{one.clients} × {len(one.seeds)}", one.clients),
                    *usual,
                    _closest(others),
                    Cell(", ".join(map(str, said)), said[0]),
                    text_cell(_lost(others)),
                )
            )
        )
    return Table(
        f"{NAME}-short",
        "Coherent minus others on every federation, average of the streams in points",
        (
            "federation", "version", "clients × seeds", "minus BTFL", "minus FedTHE", "minus FedTHE on FedAvg",
            "minus the closest", "better, not clear, worse", "streams lost",
        ),
        tuple(rows),
        (
            f"In brackets: {LEVEL:.0%} bootstrap intervals over clients and, if there are several, seeds. Version: of "
            "Coherent. The closest: the other method with the highest average. Better, not clear, worse: than how many "
            "other methods, by the interval of the average. Streams lost: to how many methods it is clearly worse on "
            "each stream, whatever its average. FedTHE: with its own training.",
        ),
    )  # fmt: skip


def in_words(federations: Sequence[Federation]) -> str:
    """Return how often ours is better than another method, not clearly so or worse, and where, in a few sentences."""
    pairs = [(one, found) for one in federations for found in one.differences if found.method not in OURS]
    counts = {word: [one.name for one, found in pairs if found.verdict == word] for word in ("not clear", "worse")}
    letters = [letter for _, found in pairs for letter in found.lost]
    lost = ", ".join(f"{letter} in {letters.count(letter)}" for letter in sorted(set(letters)))
    return (
        f"Of {len(pairs)} comparisons of averages with methods that are not ours, on {len(federations)} federations, "
        f"Coherent is clearly better in {len(pairs) - sum(map(len, counts.values()))}, "
        f"not clearly so in {_where(counts['not clear'])}, and clearly worse in {_where(counts['worse'])}. "
        "Some federations share weights, so that not all of these are independent. "
        f"On single streams it is clearly worse{f': {lost} of them' if lost else ' nowhere'}."
    )


def _where(names: Sequence[str]) -> str:
    told = ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
    return f"{len(names)} ({told})" if names else "none"


def full_tables(federations: Iterable[Federation]) -> list[Table]:
    """A table for each federation: ours minus each method on average and on every stream, the closest first."""
    return [_full_table(one) for one in federations if one.differences]


def _full_table(one: Federation) -> Table:
    streams = [column for column in one.differences[0].by_column if column != AVERAGE]
    rows = []
    for found in one.differences:
        cells = [
            interval_cell(found.average),
            *(number_cell(found.by_column[stream].difference, 1, signed=True) for stream in streams),
            text_cell(found.verdict),
            text_cell(found.lost or MISSING),
        ]
        rows.append(Row((text_cell(found.title), *cells), method=found.method))
    seeds = f"seed{'s' * (len(one.seeds) > 1)} {', '.join(map(str, one.seeds))}"
    return Table(
        f"{NAME}-{one.name}",
        f"{one.name}: version {one.version} of Coherent, {one.clients} clients, {seeds}",
        ("Coherent minus", "average", *(LETTERS[stream] for stream in streams), "Coherent is", "worse on"),
        tuple(rows),
        (f"From {' and '.join(one.folders)}.",) if len(one.folders) > 1 else (),
    )


def as_csv(federations: Iterable[Federation]) -> str:
    """Return every difference with its interval, in points, one for each federation, method and stream."""
    lines = ["federation,version,method,stream,difference,low,high"]
    for one in federations:
        for found in one.differences:
            for column, interval in found.by_column.items():
                numbers = ",".join(f"{value:.3f}" for value in (interval.difference, interval.low, interval.high))
                lines.append(f"{one.name},{one.version},{found.method},{column},{numbers}")
    return "\n".join(lines) + "\n"


def _closest(others: Sequence[Difference]) -> Cell:
    if not others:
        return text_cell(MISSING)
    cell = interval_cell(others[0].average)
    return Cell(f"{others[0].title}: {cell.text}", cell.value, parts=cell.parts)


def _lost(others: Iterable[Difference]) -> str:
    """Return on which streams ours is clearly worse, and than how many methods: ``B 3, D 1``."""
    counts: dict[str, int] = {}
    for found in others:
        for letter in found.lost:
            counts[letter] = counts.get(letter, 0) + 1
    return ", ".join(f"{letter} {counts[letter]}" for letter in sorted(counts)) or "none"


def _age(method: str) -> int:
    return OURS.index(method) if method in OURS else len(OURS)


def _are_one(group: Group, other: Group) -> bool:
    """Return whether two groups have the same streams and clients that were trained alike.

    Settings of training that one of them does not know, being older, are as they always were. Methods beside which
    nothing of ours was run were trained in another way because they must be, as pFedFDA with its paper's optimiser.
    """
    here, there = (
        {(run.seed, run.draw, run.manifest_hash, run.experiment["model"]) for run in each.runs}
        for each in (group, other)
    )
    one, two = group.first.record["training"], other.first.record["training"]
    alike = all(one[name] == two[name] for name in one.keys() & two.keys())
    return here == there and (alike or not any(name in other.titles for name in OURS))


def _is_run(folder: Path) -> bool:
    return RunFiles(folder).record.exists()
