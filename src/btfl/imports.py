"""Importing an object that a person named as ``"package.module:Name"``, a model or method of their own for example."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from btfl.errors import InputError


def load_object(
    path: str, kind: str, fits: Callable[[Any], bool] = callable, wanted: str = "a class or a function"
) -> Any:
    """Import the object that ``"package.module:Name"`` names.

    Parameters
    ----------
    path : the module as ``import`` would take it, a colon, the name in it
    kind : what the object is to be, for error messages: ``"model"``
    fits : whether an object will do
    wanted : what would, for error messages: ``"a class that derives from btfl's Adapter"``

    Raises
    ------
    InputError : for a path of another form, a missing module or name, and an object that does not fit. An import that
        fails inside the module is left as it is, because it is not the path that is wrong.

    Example
    -------
    >>> load_object("collections:OrderedDict", "container")
    <class 'collections.OrderedDict'>
    """
    module_name, _, name = path.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"{kind} '{path}': write a {kind} of your own as 'package.module:Name'")
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
