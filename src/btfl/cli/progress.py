"""Watching a run in a terminal: bars that move, and above them what must be read."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from btfl.cli import output
from btfl.engines import Event

_WINDOW = 1800.0  # seconds that the time left is estimated from; a client may take minutes
_WORDS = {
    "train": "{recipe}",
    "describe": "{recipe} describing:",
    "calibrate": "{recipe} calibrating:",
    "conclude": "{recipe} concluding:",
    "evaluate": "evaluating",
    "embed": "{recipe}",
}


class Watcher:
    """Progress bars: round, clients, time left, loss and accuracy; then clients described, concluded and evaluated.

    What btfl's own loggers say meanwhile is printed above the bars: that a run goes on where it stopped, that a
    checkpoint is damaged, that a client is left out, and why.
    """

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),  # as wide as the words leave it
            TimeRemainingColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[metrics]}"),
            console=console,
            speed_estimate_period=_WINDOW,
        )
        self._tasks: dict[str, TaskID] = {}
        self._logger, self._lines = logging.getLogger("btfl"), _Lines(self._progress.console)
        self._level = self._logger.level

    def __enter__(self) -> Watcher:
        self._level = self._logger.level
        if not output.current().verbose:  # which has them on stderr already, with their times
            self._logger.addHandler(self._lines)
            self._logger.setLevel(logging.INFO)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._logger.setLevel(self._level)
        self._logger.removeHandler(self._lines)

    def __call__(self, recipe: str, event: Event) -> None:
        """Move a bar; what a warning says has come as a line already."""
        if not event.clients:  # a warning about a client, and nothing that was done
            return
        key, words = f"{event.stage} {recipe}", _WORDS[event.stage].format(recipe=recipe)
        training = event.stage == "train"
        before = event.round - 1 if training else 0  # a run that goes on has these behind it, and not by its speed
        if key not in self._tasks:
            total = event.rounds if training else event.clients
            self._tasks[key] = self._progress.add_task(words, total=total, completed=before, metrics="")
        done = before + event.clients_done / event.clients if training else event.clients_done
        count = f"round {event.round}/{event.rounds}, " if training else ""
        of_what = "" if event.stage == "embed" else "clients "
        description = f"{words} {count}{of_what}{event.clients_done}/{event.clients}"
        self._progress.update(self._tasks[key], completed=done, description=description)
        if {"loss", "accuracy"} <= event.metrics.keys():  # FedRep has neither where there is no extractor to train
            loss, accuracy = (event.metrics[name] for name in ("loss", "accuracy"))
            self._progress.update(self._tasks[key], metrics=f"loss {loss:.3f} acc {accuracy:.1%}")


class _Lines(logging.Handler):
    """Prints what is logged as lines for a person."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        word = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        self._console.print(f"{word}{record.getMessage()}", highlight=False, markup=False, soft_wrap=True)
