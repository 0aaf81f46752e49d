"""Where every error of a command ends: one sentence on stderr, and an exit code that says whose it is."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path

from btfl.errors import BtflError, DataError, InputError, StorageError, UnknownNameError

MISTAKE, ENVIRONMENT, BUG, INTERRUPTED = 2, 1, 70, 130
"""Exit codes: the user's mistake; a disk, network or client that failed; our mistake; Ctrl-C."""

debug: ContextVar[bool] = ContextVar("debug", default=False)
"""Whether stack traces are shown (``btfl --debug COMMAND``)."""

_MISTAKES = (InputError, StorageError, DataError, UnknownNameError)
_WRONG_PLACES = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
_TRAINS = ("torch", "sklearn", "PIL", "pandas", "pyarrow", "matplotlib", "jinja2", "platformdirs", "pooch", "filelock")
"""Modules that ``btfl[train]`` installs."""
_HINTS = {
    errno.ENOSPC: "make space, then give the same command again",
    errno.EROFS: "choose a place that can be written to, with --out for example",
    errno.EACCES: "choose a place you have the rights for, with --out for example",
    errno.EEXIST: "a file is where a folder is needed; choose another place, with --out for example",
    errno.ENOTDIR: "a file is where a folder is needed; choose another place, with --out for example",
    errno.EISDIR: "a folder is where a file is needed",
    errno.ENAMETOOLONG: "choose a shorter one",
}


def prepare_streams() -> None:
    """Let a terminal that lacks a character show another in its place; without it, printing would be an error."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def explain(error: BaseException) -> int:
    """Print what went wrong in one sentence, after the stack trace if that is asked for; return the exit code."""
    if isinstance(error, BrokenPipeError):  # whoever read our output has read enough
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ENVIRONMENT
    if isinstance(error, KeyboardInterrupt):
        with suppress(ValueError):  # not in a thread
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # another Ctrl-C ends the process at once, without a trace
    if debug.get():
        traceback.print_exception(error)
    sentence, code = _sentence(error)
    with suppress(OSError):
        print(f"btfl: {sentence}", file=sys.stderr)
    return code


def _sentence(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C. What is finished is kept: the same command continues from there", INTERRUPTED
    if isinstance(error, BtflError):
        return str(error), MISTAKE if isinstance(error, _MISTAKES) else ENVIRONMENT
    if isinstance(error, OSError):
        hint = _HINTS.get(error.errno or 0)
        place = error.filename2 or error.filename  # where something was to be moved to, not its temporary name
        said = ": ".join(str(part) for part in (place, error.strerror or error) if part is not None)
        return (f"{said}; {hint}" if hint else said), MISTAKE if error.errno in _WRONG_PLACES else ENVIRONMENT
    if isinstance(error, MemoryError):
        return "there is not enough memory: use fewer workers, or fewer or smaller images", ENVIRONMENT
    if isinstance(error, UnicodeError):
        return f"text that is not UTF-8 was given or read: {error}", MISTAKE
    if isinstance(error, ModuleNotFoundError) and error.name in _TRAINS:  # btfl[serve] has the command line, too
        return f"{error.name} is not installed; this command needs: pip install 'btfl[train]'", MISTAKE
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    if place := _own_code(error):
        return f"{place}, which is not part of btfl: {said}. `btfl --debug ...` shows the stack trace", MISTAKE
    return f"this is a bug in btfl: {said}. Please report it with what `btfl --debug ...` shows", BUG


def _own_code(error: BaseException) -> str | None:
    """Return the last line that ran in a module of the user's own, in or below the working folder; None if none did."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    here, package = Path.cwd(), Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(here) and not path.is_relative_to(package) and "site-packages" not in path.parts:
            return f"{path}, line {frame.lineno}"
    return None
