"""A knob is written once: its type, range, default and meaning stand on the field of a settings class.

Checks, error messages, the command line, TOML and the documentation all read them from there:

    @dataclass(frozen=True)
    class FadingSettings(Settings):
        title: ClassVar[str] = "fading"

        rate: float = knob(0.1, "Share of the memory that a sample replaces.", least=0, most=1)
        kind: Literal["slow", "quick"] = knob("slow", "How it fades.")
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from btfl.errors import InputError, UnknownNameError

_KEY = "knob"
_LIMITS = ("least", "most", "above", "below")
Choices = Callable[[], Iterable[str]]


@dataclass(frozen=True)
class _Declared:
    help: str
    least: float | None
    most: float | None
    above: float | None
    below: float | None
    choices: Choices | None


def knob(
    default: Any,
    help: str,  # noqa: A002 - the word that every option parser uses
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Choices | None = None,
) -> Any:
    """Declare a setting on a field of a ``Settings`` class.

    Parameters
    ----------
    default : its value if nothing is said; a mapping or list is copied for each object
    help : what it means, in a sentence
    least, most : the range, ends included
    above, below : the range, ends excluded
    choices : a function that names the values a text may have, where they are registered elsewhere
    """
    declared = {_KEY: _Declared(help, least, most, above, below, choices)}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata=declared)
    return field(default=default, metadata=declared)


@dataclass(frozen=True)
class Knob:
    """What is known of one setting."""

    name: str
    type: Any
    """The field's type, without ``None``."""
    default: Any
    help: str
    optional: bool
    """Whether ``None`` is a value too."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    @classmethod
    def of(cls, name: str, hint: Any, default: Any, help: str, choices: Sequence[str] = (), **limits: Any) -> Self:  # noqa: A002
        """Make a knob from a field's annotation: ``int | None``, ``Literal["a", "b"]``, ``tuple[str, ...]``."""
        kind, optional = _without_none(hint)
        choices = tuple(choices) or (get_args(kind) if get_origin(kind) is Literal else ())
        base = get_origin(kind) or kind
        base = type(choices[0]) if choices else dict if base in (dict, Mapping) else base
        return cls(name, base, default, help, optional, choices, **limits)

    @property
    def range(self) -> str:
        """What values it takes, in words: ``a number from 0 to 1``."""
        if self.choices:
            return f"one of {', '.join(map(repr, self.choices))}"
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        kind = words.get(self.type, "a list" if self.type is tuple else "a table" if self.type is dict else "a value")
        return f"{kind}{self._limits()}" + (", or none" if self.optional else "")

    def _limits(self) -> str:
        if self.least is not None and self.most is not None:
            return f" from {self.least:g} to {self.most:g}"
        parts = (("above", self.above), ("of at least", self.least), ("below", self.below), ("of at most", self.most))
        said = [f"{word} {limit:g}" for word, limit in parts if limit is not None]
        return f" {' and '.join(said)}" if said else ""

    def check(self, value: object, of: str = "") -> None:
        """Raise an ``InputError`` that says what would be right, if the value is not."""
        if (value is None and self.optional) or self._fits(value):
            return
        where = f"{of}: {self.name}" if of else self.name
        if self.choices and isinstance(value, str):
            raise UnknownNameError(f"{self.name} of {of}" if of else self.name, value, self.choices)
        raise InputError(f"{where} must be {self.range}, not {value!r}")

    def _fits(self, value: object) -> bool:
        if self.choices:
            return value in self.choices
        if self.type is bool:
            return isinstance(value, bool)
        if self.type is int or self.type is float:
            kind = Integral if self.type is int else Real
            return isinstance(value, kind) and not isinstance(value, bool) and self._within(value)
        if self.type is str:
            return isinstance(value, str)
        if self.type is tuple:
            return isinstance(value, Sequence) and not isinstance(value, str)
        return self.type is not dict or isinstance(value, Mapping)

    def _within(self, number: Any) -> bool:
        try:
            value = float(number)
        except OverflowError:  # a whole number of 400 digits
            return False
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


class Settings:
    """Base of all settings: a frozen dataclass whose fields are knobs, checked when an object is made."""

    title: ClassVar[str] = ""
    """Whose settings they are, for error messages."""
    of_arithmetic: ClassVar[tuple[str, ...]] = ()
    """Those that say how numbers are computed and not what is decided: what was found with one value holds with all."""

    def __post_init__(self) -> None:
        for each in self.knobs():
            each.check(getattr(self, each.name), self.title)
        self.check()

    def check(self) -> None:
        """Raise an ``InputError`` if single settings are right and do not go together."""

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """Return what is known of each setting."""
        return _knobs(cls)

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Make settings from names that a person typed; an unknown one is named with its nearest relatives."""
        known = [each.name for each in cls.knobs()]
        for name in values:
            if name not in known:
                raise UnknownNameError(f"setting of {cls.title}" if cls.title else "setting", name, known)
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for JSON."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class NoSettings(Settings):
    """For what has nothing to set."""


def _knobs(cls: type[Settings]) -> tuple[Knob, ...]:
    hints = _hints(cls)  # type: ignore[arg-type]
    found = []
    for each in fields(cls):  # type: ignore[arg-type]
        declared: _Declared = each.metadata.get(_KEY) or _Declared("", None, None, None, None, None)
        choices = () if declared.choices is None else tuple(declared.choices())
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        limits = {limit: getattr(declared, limit) for limit in _LIMITS}
        found.append(Knob.of(each.name, hints[each.name], default, declared.help, choices, **limits))
    return tuple(found)


@cache
def _hints(cls: type[Settings]) -> dict[str, Any]:
    """Reading annotations is slow, and they do not change; choices that are registered elsewhere may."""
    return get_type_hints(cls)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, types.UnionType):
        parts = [part for part in get_args(kind) if part is not type(None)]
        if len(parts) < len(get_args(kind)):
            return (parts[0] if len(parts) == 1 else Union[tuple(parts)]), True  # noqa: UP007
    return kind, False
