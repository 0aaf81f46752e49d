"""Importing an object that a person named as ``"package.module:Name"``, a model or method of their own for example.

To import is to run. This is the only module that imports what is not part of btfl, and it asks first: in Python all
that a caller names is imported; inside ``only_trusted``, as on the command line, nothing but what was typed there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from btfl.errors import InputError


@dataclass(frozen=True)
class _Policy:
    names: frozenset[str]
    everything: bool
    flags: frozenset[str]


_policy: ContextVar[_Policy | None] = ContextVar("policy", default=None)
_place: ContextVar[str] = ContextVar("place", default="a file")


@contextmanager
def only_trusted(
    names: Collection[str] = (), *, everything: bool = False, flags: Collection[str] = ("--trust-code",)
) -> Iterator[None]:
    """Refuse, inside the block, to import modules that are not part of btfl, but for those named here.

    A module that is named may be in the working folder, which is searched last.

    Parameters
    ----------
    names : ``module:Name`` of what may be imported
    everything : import whatever a file names
    flags : what a person can type to allow more, for error messages

    Example
    -------
    >>> with only_trusted(["my_module:MyMethod"]):
    ...     run_bench(make_experiment(values), "runs/mine")
    """
    before, token = list(sys.path), _policy.set(_Policy(frozenset(names), everything, frozenset(flags)))
    try:
        yield
    finally:
        _policy.reset(token)
        if str(Path.cwd()) not in before:
            sys.path[:] = [place for place in sys.path if place != str(Path.cwd())]


@contextmanager
def named_in(place: object) -> Iterator[None]:
    """Say which file or folder names are read from inside the block, for error messages."""
    token = _place.set(str(place))
    try:
        yield
    finally:
        _place.reset(token)


def check_trusted(path: str, kind: str) -> None:
    """Raise an ``InputError`` if the object that ``path`` names may not be imported; see ``only_trusted``."""
    policy = _policy.get()
    if policy is None or policy.everything or path in policy.names:
        return
    ways = [f"{flag} {path}" for flag in (f"--{kind}",) if flag in policy.flags]
    ways += [f"{flag} (imports all that is named)" for flag in ("--trust-code",) if flag in policy.flags]
    raise InputError(
        f"{_place.get()} names the {kind} '{path}', which is code and is not run because a file says so"
        + (f". If you trust it, add {' or '.join(ways)}" if ways else "")
    )


def load_object(
    path: str, kind: str, fits: Callable[[Any], bool] = callable, wanted: str = "a class or a function"
) -> Any:
    """Import the object that ``"package.module:Name"`` names, if it is trusted.

    Parameters
    ----------
    path : the module as ``import`` would take it, a colon, the name in it
    kind : what the object is to be, for error messages: ``"model"``
    fits : whether an object will do
    wanted : what would, for error messages: ``"a class that derives from btfl's Adapter"``

    Raises
    ------
    InputError : for a path of another form, one that is not trusted (``only_trusted``), a missing module or name, and
        an object that does not fit. An import that fails inside the module is left as it is, because it is not the
        path that is wrong.

    Example
    -------
    >>> load_object("collections:OrderedDict", "container")
    <class 'collections.OrderedDict'>
    """
    module_name, _, name = path.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"{kind} '{path}': write a {kind} of your own as 'package.module:Name'")
    check_trusted(path, kind)
    if _policy.get() is not None and str(Path.cwd()) not in sys.path:
        # Last, so that nothing there takes the place of anything; worker processes and later imports need it too.
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something it imports itself is not
        raise InputError(
            f"{kind} '{path}': there is no module '{error.name}'. Install it, or add its folder to PYTHONPATH"
        ) from None
    if not hasattr(module, name):
        raise InputError(f"{kind} '{path}': the module '{module_name}' has no '{name}'")
    found = getattr(module, name)
    if not fits(found):
        raise InputError(f"{kind} '{path}': '{name}' of the module '{module_name}' is not {wanted}")
    return found


def load_own(path: str) -> Any:
    """Import an object of btfl's own, which one of its registries names as ``"btfl.module:Name"``."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
