"""The methods by name. Each module of this package declares its own; a method of yours is ``my_module:MyMethod``."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import btfl.methods
from btfl.errors import InputError, UnknownNameError
from btfl.imports import load_object
from btfl.methods.base import Client, Method
from btfl.methods.card import Card
from btfl.methods.generative_head import with_generative_head

HeadChoice = Literal["trained", "generative"]
ALL = "all"
"""In a list of methods: every one that takes no gradient steps at test time (``every_method``)."""
Group = Literal["shared", "trained", "gradients", "ceiling"]
GROUPS: Mapping[Group, str] = {
    "shared": "On FedAvg's training, without gradients at test time",
    "trained": "On a training of their own, without gradients at test time",
    "gradients": "With gradients at test time",
    "ceiling": "Told the answers: ceilings, not methods",
}
"""What methods need, by which they are listed; a method's own class says it (``recipe``, ``gradients``)."""


@dataclass(frozen=True)
class Variant:
    """A row of a table: a method under one of its names, with its settings."""

    name: str
    """How it is asked for."""
    method: type[Method]
    card: Card
    settings: Mapping[str, Any] = field(default_factory=dict)
    test_batch: int | None = None
    """How many samples it sees at a time; None: what the benchmark is set to."""
    global_head: HeadChoice = "trained"
    """``generative``: the head made of all clients' sums takes the place of the trained global one."""

    @property
    def title(self) -> str:
        """How it stands in a table."""
        return self.card.title

    @property
    def trained_with(self) -> str:
        """The recipe whose federation it runs on."""
        return self.card.recipe or self.method.recipe

    @property
    def group(self) -> Group:
        """What it needs: FedAvg's training or one of its own, gradients at test time, or the answers."""
        if self.method.sees_labels:
            return "ceiling"
        if self.method.gradients:
            return "gradients"
        return "shared" if self.trained_with == Method.recipe else "trained"

    @property
    def steps_after_rounds(self) -> bool:
        """Whether it takes steps of an optimiser after the rounds, when they end or at test time.

        They carry rounding on, so that on another make of processor answers may differ with the same weights.
        """
        return self.method.trained_later or self.method.gradients

    def check(self) -> None:
        """Raise an error for settings that the method does not have."""
        self.method.check_settings(self.settings)

    def build(self, client: Client) -> Method:
        """Make the method for one client."""
        if self.global_head == "generative":
            client = replace(client, bundle=with_generative_head(client.bundle))  # type: ignore[type-var]
        try:
            return self.method(client, **self.settings)
        except TypeError as error:
            raise InputError(f"method '{self.name}' cannot be built with {dict(self.settings)}: {error}") from None


def _declared() -> Iterator[Variant]:
    for module in pkgutil.iter_modules(btfl.methods.__path__, "btfl.methods."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Method) and value.__module__.startswith(module.name):
                for card in vars(value).get("cards", ()):
                    first = value.cards[0]
                    told = replace(card, summary=card.summary or first.summary, paper=card.paper or first.paper)
                    yield Variant(card.name, value, told, card.settings)


METHODS: Mapping[str, Variant] = {variant.name: variant for variant in _declared()}


def every_method(recipes: Collection[str] | None = None) -> list[str]:
    """Name the methods that take no gradient steps at test time: those that do take minutes where others take seconds.

    Parameters
    ----------
    recipes : only those trained with one of these; None: all
    """
    quick = [variant for variant in METHODS.values() if not variant.method.gradients]
    return [variant.name for variant in quick if recipes is None or variant.trained_with in recipes]


def find_method(text: str) -> Variant:
    """Find a method: ``btfl``, ``btfl[count=after,test_batch=1]``, ``my_module:MyMethod[k=3]``."""
    match = re.fullmatch(r"\s*([^\[\]]+?)\s*(?:\[(.*)\])?\s*", text)
    if match is None:
        raise InputError(f"cannot read the method '{text}'; write name or name[setting=value,...]")
    name, changes = match[1], _read_settings(text, match[2] or "")
    if ":" in name:
        own: type[Method] = load_object(name, "method", _is_method, "a class that derives from btfl's Method")
        card = own.card()
        variant = Variant(name, own, card if own.cards else replace(card, title=name.rpartition(":")[2]))
    elif name.lower() in METHODS:
        variant = METHODS[name.lower()]
    else:
        raise UnknownNameError("method", name, METHODS)
    if not changes:
        return variant
    test_batch = changes.pop("test_batch", variant.test_batch)
    if test_batch is not None and (type(test_batch) is not int or test_batch < 1):
        raise InputError(f"test_batch is a number of samples, at least 1, not {test_batch!r}")
    global_head = changes.pop("global_head", variant.global_head)
    if global_head not in get_args(HeadChoice):
        raise InputError(f"global_head is one of {', '.join(get_args(HeadChoice))}, not {global_head!r}")
    if global_head == "generative" and variant.method.takes != "features":
        raise InputError(f"the method '{name}' works on images and has no place for another global head")
    return replace(
        variant,
        name=text.strip(),
        card=replace(variant.card, title=f"{variant.title} [{match[2]}]"),
        settings={**variant.settings, **changes},
        test_batch=test_batch,
        global_head=global_head,
    )


def _read_settings(text: str, inner: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in inner.split(","))):
        key, equals, value = item.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"in the method '{text}', '{item}' is not setting=value")
        settings[key.strip()] = _read_value(value.strip())
    return settings


def _read_value(value: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return words[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _is_method(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Method)
