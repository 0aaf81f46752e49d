"""What a command prints, in one place: text or JSON, quiet or verbose; every command has these options.

The result of a command goes to stdout, once, when it is known. What is said on the way (progress, notes) goes there
too, but to stderr with ``--json``, so that stdout is one JSON document; with ``--quiet`` it is left out.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typer.core import TyperOption

if TYPE_CHECKING:
    from rich.console import Console

PANEL = "Output"


@dataclass(frozen=True)
class Output:
    """How a command prints."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False


_PLAIN = Output()
_current: ContextVar[Output] = ContextVar("output", default=_PLAIN)


def options() -> list[click.Parameter]:
    """Return ``--json``, ``--quiet`` and ``--verbose``, as every command has them."""
    return [
        _flag("as_json", "--json", help="Print the result as one JSON document on stdout; the rest goes to stderr."),
        _flag("quiet", "--quiet", "-q", help="Print the result alone: no progress, no notes."),
        _flag("verbose", "--verbose", "-v", help="Print more: every table of a report, and btfl's log with its times."),
    ]


def _flag(name: str, *flags: str, help: str) -> TyperOption:  # noqa: A002 - the word that every option parser uses
    return TyperOption(param_decls=[name, *flags], is_flag=True, default=False, help=help, rich_help_panel=PANEL)


@contextmanager
def settled(typed: Mapping[str, Any]) -> Iterator[None]:
    """Print as was typed, as long as the context lasts."""
    chosen = Output(*(bool(typed.get(name)) for name in ("as_json", "quiet", "verbose")))
    if chosen.quiet and chosen.verbose:
        raise click.UsageError("--quiet and --verbose go in opposite directions; give one of them")
    token = _current.set(chosen)
    try:
        with _logged() if chosen.verbose else nullcontext():
            yield
    finally:
        _current.reset(token)


def current() -> Output:
    """Return how the command that runs prints."""
    return _current.get()


def console(**settings: Any) -> Console:
    """Return where a command says what it does: progress and notes; ``settings`` are those of rich's console."""
    from rich.console import Console

    return Console(stderr=current().as_json, quiet=current().quiet, **settings)


def say(text: str) -> None:
    """Say a line on the way to a result."""
    if not current().quiet:
        click.echo(text, err=current().as_json)


def emit(result: Any, show: Callable[[Console], None], **settings: Any) -> None:
    """Print the result of a command: as JSON if that was asked for, else as ``show`` prints it.

    Parameters
    ----------
    result : mappings, sequences, texts, numbers, paths; a number that is not finite is null in JSON
    show : prints it for a person, on the console that it is given
    settings : of that console, rich's
    """
    from rich.console import Console

    if current().as_json:
        click.echo(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False, indent=2))
    else:
        show(Console(**settings))


def emit_lines(result: Any, *lines: object) -> None:
    """Print a result that is a few lines of plain text for a person."""

    def show(_: Console) -> None:
        for line in lines:
            click.echo(str(line))

    emit(result, show)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # a number of numpy's
        return _plain(value.item())
    return str(value)


@contextmanager
def _logged() -> Iterator[None]:
    """Write what btfl's loggers say to stderr, with the time and the logger's name."""
    logger, handler = logging.getLogger("btfl"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
