"""Which runs may be averaged: those that differ in nothing but the seed, or the draw of the streams.

Runs of another model, another heterogeneity or another training stand side by side. Runs whose streams are of another
kind are refused, unless a person asks for them to be shown apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from btfl.data.streams import LETTERS, STREAMS, Manifest
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.methods.registry import METHODS
from btfl.report.accuracy import AVERAGE, by_client, by_seed, streams_in
from btfl.report.extras import chosen
from btfl.report.style import Style, style_of
from btfl.runs.layout import RunFiles
from btfl.runs.saved import REPORTED, SavedRun, load_run

REFERENCE = "btfl"
ORACLE = "oracle"
_NAMED = {"dataset": "images (fingerprint)", "other domain": "images of the other domain (fingerprint)"}
"""Names that may be those of files, and what says whether the samples are the same."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that are one experiment with several seeds."""

    runs: tuple[SavedRun, ...]
    label: str
    """What distinguishes it from the report's other groups, for headings and legends."""
    slug: str = ""
    """The same for file names; empty if there is only one group."""
    asked: str | None = None
    """The method a person wants compared with all others."""
    extras: tuple[str, ...] = ()
    """Columns beside accuracy that were asked for (``btfl.report.extras``)."""

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Accuracy by seed, method, client and stream; the five streams only."""
        rows = pd.concat([run.rows for run in self.runs], ignore_index=True)
        return rows[rows["stream"].isin(STREAMS)].reset_index(drop=True)

    @cached_property
    def streams(self) -> list[str]:
        """Those of the five streams that there are: some data have no B and D."""
        return streams_in(self.rows)

    @cached_property
    def by_client(self) -> pd.DataFrame:
        """Accuracy in % by method, seed and client: a column for each stream, and their average."""
        return by_client(self.rows)

    @cached_property
    def by_seed(self) -> pd.DataFrame:
        """Accuracy in % by method and seed: each client counts the same."""
        return by_seed(self.by_client)

    @property
    def columns(self) -> list[str]:
        """The streams and their average."""
        return [*self.streams, AVERAGE]

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Every sample of every stream, the switching one included."""
        return pd.concat([run.samples for run in self.runs], ignore_index=True)

    def samples_of(self, method: str) -> pd.DataFrame:
        """Return the samples of one method, of every stream, with the columns that reports need (``REPORTED``)."""
        parts = [run.samples_of(method) for run in self.runs]
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    @property
    def has_samples(self) -> bool:
        """Whether all its runs kept every sample; those under ``results/`` of the repository have not."""
        return all(run.has_samples for run in self.runs)

    def style(self, method: str) -> Style:
        """Return how a method is drawn: by its own card, which the runs have saved, if it is not one of ours."""
        saved = [one for run in self.runs for one in run.record.get("methods", ()) if one.get("name") == method]
        return style_of(method, saved[0] if saved else None)

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """Titles of the methods by name, the oracle last."""
        pairs = dict(zip(self.rows["method"], self.rows["title"], strict=True))
        return dict(sorted(pairs.items(), key=lambda pair: is_oracle(pair[0])))

    @property
    def may_differ(self) -> list[str]:
        """The methods that take steps after the rounds, if those were loaded: on another processor they may differ."""
        if not any(run.has_started for run in self.runs):
            return []
        told = {one.get("name"): one for run in self.runs for one in run.record.get("methods", ())}
        return [name for name in self.titles if _steps_after_rounds(name, told.get(name, {}))]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return sorted({run.seed for run in self.runs})

    @property
    def draws(self) -> int:
        """How many draws of the streams there are."""
        return len({run.draw for run in self.runs})

    @property
    def first(self) -> SavedRun:
        """The first run, for what all have in common."""
        return self.runs[0]

    def everything_but(self, *names: str) -> str:
        """Return all that the group's runs have in common except these settings, as a key to compare groups by."""
        return json.dumps({k: v for k, v in self.settings.items() if k not in names}, sort_keys=True, default=str)

    @property
    def settings(self) -> dict[str, Any]:
        """All that its runs have in common: the kind of their streams, and the settings of the experiment."""
        return {**_kind(self.first), **_setting(self.first)}

    @property
    def reference(self) -> str | None:
        """The method the others are compared with: what was asked for, else BTFL, where it was run."""
        if self.asked is not None:
            return self.asked
        if REFERENCE in self.titles:
            return REFERENCE
        return next((name for name in self.titles if name.startswith(REFERENCE)), None)

    def file(self, name: str) -> str:
        """Name a table or figure of this group."""
        return f"{name}-{self.slug}" if self.slug else name

    def telling(self, column: str) -> list[str]:
        """Name the methods that have this trace column, ``e`` for instance; the oracle, which has the truth, is not."""
        if not self.has_samples:
            return []
        if column not in REPORTED:
            every = self.samples
            found = set(every.loc[every[column].notna(), "method"]) if column in every else set()
        else:
            found = {name for name in self.titles if self.samples_of(name)[column].notna().any()}
        return [name for name in self.titles if name in found and not is_oracle(name)]


def _steps_after_rounds(method: str, saved: Mapping[str, Any]) -> bool:
    """Return what a run has saved of a method, or what is known of ours: btfl 0.1 and 0.2 saved nothing of it."""
    known = METHODS.get(method.split("[")[0])
    return saved.get("steps_after_rounds", known is not None and known.steps_after_rounds) is True


def is_oracle(method: str) -> bool:
    """Whether this row is no method but a ceiling."""
    return method.startswith(ORACLE)


def load_runs(folders: Iterable[str | Path]) -> list[SavedRun]:
    """Read the runs of a report; a folder that is no run but holds some, as of several seeds, stands for those."""
    runs = [load_run(inner) for folder in folders for inner in runs_in(Path(folder))]
    if not runs:
        raise InputError("name at least one run folder; `btfl bench` makes one")
    return runs


def runs_in(folder: Path) -> list[Path]:
    """Return the folder itself if it is a finished run, or if there is none inside it; else those inside."""
    if RunFiles(folder).record.exists():
        return [folder]
    return [place for place in sorted(folder.glob("*")) if RunFiles(place).record.exists()] or [folder]


def group_runs(
    runs: Sequence[SavedRun], *, apart: bool = False, reference: str | None = None, extras: Sequence[str] = ()
) -> list[Group]:
    """Group runs that differ in seed or draw alone; refuse streams of several kinds unless they are kept apart.

    Parameters
    ----------
    reference : the method to compare with all others; None: BTFL
    extras : names of columns beside accuracy (``btfl.report.extras``)
    """
    if not apart:
        _check_one_kind(runs)
    found: dict[str, list[SavedRun]] = {}
    for run in runs:
        kind = {name: value for name, value in _kind(run).items() if name not in _NAMED}
        found.setdefault(json.dumps([kind, _setting(run)], sort_keys=True, default=str), []).append(run)
    groups = [sorted(members, key=lambda run: (run.seed, run.draw)) for members in found.values()]
    for members in groups:
        _check_members(members)
    labels = _labels([members[0] for members in groups])
    return [
        Group(
            tuple(members),
            label,
            _slug(label, number) if len(groups) > 1 else "",
            _named_method(members, reference),
            chosen(extras),
        )
        for number, (members, label) in enumerate(zip(groups, labels, strict=True), start=1)
    ]


def _named_method(members: Sequence[SavedRun], reference: str | None) -> str | None:
    """Find the method to compare with, as it is named in results."""
    if reference is None:
        return None
    known = {str(name): str(name) for run in members for name in run.rows["method"].unique()}
    found = known.get(reference.strip()) or known.get(reference.strip().lower())
    if found is None:
        raise UnknownNameError("method to compare with (--reference)", reference, known)
    return found


def _kind(run: SavedRun) -> dict[str, Any]:
    """Return what makes streams incomparable if it differs."""
    data, streams, experiment = run.record["data"], run.record["streams"], run.experiment
    return {
        "dataset": data["source"],
        "other domain": data["shift"] or "none",
        "split": experiment["split"],
        "severity": streams["severity"],
        "corruptions": ", ".join(streams["corruptions"]) or "none",
        "longest stream": streams.get("longest") or "all",
        "streams": ", ".join(LETTERS[stream] for stream in streams_in(run.rows)),
        "partition": experiment["partition"],
        "images (fingerprint)": data["fingerprint"][:12],
        "images of the other domain (fingerprint)": (data["shift_fingerprint"] or "none")[:12],
    }


def _setting(run: SavedRun) -> dict[str, Any]:
    """Return what makes another experiment on streams of the same kind."""
    experiment, training = run.experiment, run.record["training"]
    deal = {"dirichlet": ("alpha",), "shards": ("shards",)}.get(experiment["partition"], ())
    return {
        "model": experiment["model"],
        **{name: experiment[name] for name in deal},
        "clients": experiment["clients"] or "all natural ones",
        "defence": "none",  # of runs that were made before there was any
        **{name: value for name, value in training.items() if name not in ("model", "seed")},
        "test_batch": experiment["test_batch"],
    }


def _check_one_kind(runs: Sequence[SavedRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        here, there = _kind(first), _kind(run)
        for name in here:
            told = _NAMED.get(name, name)
            if here[name] != there[name] and here[told] != there[told]:
                raise InputError(
                    f"{first.folder} and {run.folder} cannot be reported together: {name} is '{here[name]}' in the one "
                    f"and '{there[name]}' in the other. Report them one by one, or side by side with --apart"
                )


def _check_members(members: Sequence[SavedRun]) -> None:
    seen: dict[tuple[int, int, str], SavedRun] = {}
    hashes: dict[tuple[int, int], SavedRun] = {}
    for run in members:
        for method in run.rows["method"].unique():
            other = seen.setdefault((run.seed, run.draw, method), run)
            if other is not run:
                raise InputError(
                    f"{other.folder} and {run.folder} both hold '{method}' with seed {run.seed} and the same settings: "
                    "that is one result twice. Leave one out, or run another seed or draw"
                )
        alike = hashes.setdefault((run.seed, run.draw), run)
        if alike.manifest_hash != run.manifest_hash and not _same_streams(alike, run):
            raise InputError(f"{alike.folder} and {run.folder} have the same seed but other streams")


def _same_streams(one: SavedRun, other: SavedRun) -> bool:
    """Return whether streams are the same although their hashes differ: older ones cover names of files."""
    try:
        return Manifest.load(one.folder).same_streams(Manifest.load(other.folder))
    except StorageError:  # their streams were not kept
        return False


def _labels(firsts: Sequence[SavedRun]) -> list[str]:
    """Name each group by dataset, model and heterogeneity, and by whatever else differs between the groups."""
    everything = [{**_kind(run), **_setting(run)} for run in firsts]
    named = ("dataset", "model", "alpha", "shards")
    labels = []
    for run, own in zip(firsts, everything, strict=True):
        parts = [own["dataset"], own["model"]]
        parts.append({"dirichlet": f"Dir({run.experiment['alpha']:g})"}.get(own["partition"], own["partition"]))
        for name in own:
            differs = any(other.get(name) != own[name] for other in everything if other["model"] == own["model"])
            if name not in named and "fingerprint" not in name and differs:
                parts.append(f"{name.replace('_', ' ')} {own[name]}")
        labels.append(", ".join(parts))
    return labels


def _slug(label: str, number: int) -> str:
    plain = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in label.lower())
    short = "-".join(part for part in plain.split("-") if part)[:48].strip("-.")
    return f"{number}-{short}"
