"""Running a benchmark in a terminal: progress while it works, the table when it is done."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from btfl.adapters.registry import METHODS
from btfl.bench.experiment import Experiment, make_experiment, read_experiment, read_preset
from btfl.bench.run import BenchRun, run_bench
from btfl.cli.report import show_report
from btfl.engines import Event, FaultSettings
from btfl.engines.base import Engine
from btfl.errors import InputError


def collect(path: Path | None, preset: str | None, options: dict[str, Any], settings: list[str]) -> Experiment:
    """Put an experiment together from a file or preset and what was typed beside it."""
    if path is not None and preset is not None:
        raise InputError("name an experiment file or a preset, not both")
    values = read_experiment(path) if path else read_preset(preset) if preset else {}
    for item in settings:
        name, equals, text = item.partition("=")
        if not equals:
            raise InputError(f"--set takes name=value, not '{item}'")
        options[name.strip()] = _value(text.strip())
    for name, value in options.items():
        place, *rest = name.split(".", 1)
        if rest:
            values[place] = {**values.get(place, {}), rest[0]: value}
        else:
            values[place] = value
    values.setdefault("name", preset or values.get("dataset", "digits"))
    return make_experiment(values)


def run_and_show(
    experiment: Experiment,
    folder: Path,
    workers: int,
    engine: Engine | None = None,
    faults: FaultSettings | None = None,
) -> BenchRun:
    """Run, with a progress bar; then print the table and where the report is."""
    console = Console()
    run = run_with_progress(experiment, folder, workers, console, engine, faults)
    show_report([folder], folder, console)
    return run


def run_with_progress(
    experiment: Experiment,
    folder: Path,
    workers: int,
    console: Console,
    engine: Engine | None = None,
    faults: FaultSettings | None = None,
) -> BenchRun:
    """Run, with a progress bar."""
    with _Watcher(console) as watcher:
        return run_bench(experiment, folder, workers=workers, engine=engine, watch=watcher, faults=faults)


class _Watcher:
    """Progress bars: rounds with loss, accuracy and time left, then clients described, concluded and evaluated."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
            console=console,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Watcher:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, recipe: str, event: Event) -> None:
        names = {
            "train": f"training {recipe}",
            "describe": f"describing data ({recipe})",
            "conclude": f"making bundles ({recipe})",
            "evaluate": "evaluating clients",
        }
        name = names[event.stage]
        total = event.rounds if event.stage == "train" else event.clients
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, detail="")
        if event.stage != "train":
            self._progress.update(self._tasks[name], completed=event.clients_done)
        elif event.metrics:
            loss, accuracy = (event.metrics.get(name, float("nan")) for name in ("loss", "accuracy"))
            detail = f"loss {loss:.3f}  accuracy {accuracy:.1%}"
            self._progress.update(self._tasks[name], completed=event.round, detail=detail)
        else:
            self._progress.update(
                self._tasks[name],
                completed=event.round - 1 + event.clients_done / event.clients,
                description=f"{name} {event.clients_done}/{event.clients}",
            )


def show_methods() -> None:
    """List the registry."""
    console = Console(highlight=False)
    for method in METHODS.values():
        adapter = method.adapter_class()
        console.print(f"[bold]{method.name}[/bold]  {method.title}: {adapter.summary}")
        parameters = list(inspect.signature(adapter.__init__).parameters.values())[2:]
        settings = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        settings.update(method.settings)
        told = ", ".join(f"{key} = {value}" for key, value in settings.items()) or "none"
        console.print(
            f"    paper: {adapter.paper or 'none'}\n    trains: {method.trained_with}; sees: {adapter.takes}; "
            f"settings: {told}",
            markup=False,
        )
    console.print(
        "\nA method of your own: --method my_module:MyAdapter; change settings with name\\[setting=value,...]."
    )


def _value(text: str) -> Any:
    """Read a value as TOML would, or else as the text it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
