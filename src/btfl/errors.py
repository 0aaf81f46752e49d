"""Errors a person can act on: each says what is wrong and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def listed(names: Iterable[str], most: int = 5) -> str:
    """Return the first names, and how many more there are: ``a, b and 7 more``."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def first_line(error: BaseException) -> str:
    """Return what an error says, without the lines that some libraries add below: tarfile, one for each compression."""
    return str(error).partition("\n")[0].rstrip(": ")


class BtflError(Exception):
    """Anything btfl refuses to do. The command line prints the message without a stack trace."""


class InputError(BtflError, ValueError):
    """A value that was handed in is not usable: wrong shape, not finite, out of range."""


class StorageError(BtflError, OSError):
    """A file on disk is missing, damaged, or of a version we do not know."""


class DataError(BtflError, ValueError):
    """A dataset is missing, damaged or not laid out as expected."""


class TooFewClientsError(BtflError):
    """So many clients failed that going on would be another federation than the one asked for."""


class UnknownNameError(BtflError, KeyError):
    """A name that no registry knows; the message offers the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=3, cutoff=0.5)
        nearest = [n for n in names if n.lower() in near]
        hint = f"Did you mean {' or '.join(nearest)}? " if nearest else ""
        choice = f"Known: {', '.join(names)}." if names else "There are none."
        super().__init__(f"unknown {kind} '{name}'. {hint}{choice}")
        self.kind, self.name, self.known = kind, name, names

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, list[str]]]:
        return type(self), (self.kind, self.name, self.known)  # so that it comes back whole from a worker process

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0])
