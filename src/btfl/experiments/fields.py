"""Fields of a pydantic model as knobs and back, and what is wrong with a value in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from btfl.errors import InputError, UnknownNameError
from btfl.knobs import Knob, Settings

Model = TypeVar("Model", bound=BaseModel)
_LIMITS = {"least": "ge", "most": "le", "above": "gt", "below": "lt"}


def setting(of: type[Settings], name: str) -> Any:
    """Declare a field that is a setting elsewhere: its default, meaning and range are taken from there.

    >>> class Experiment(BaseModel):
    ...     clients: int = setting(PartitionSettings, "clients")
    """
    (found,) = (each for each in of.knobs() if each.name == name)
    limits = {word: getattr(found, limit) for limit, word in _LIMITS.items()}
    return Field(found.default, description=found.help, **limits)


def knobs_of(model: type[BaseModel]) -> tuple[Knob, ...]:
    """Return what is known of each field: type, default, meaning, choices and range."""
    found = []
    for name, field in model.model_fields.items():
        limits: dict[str, Any] = {
            limit: next((getattr(each, word) for each in field.metadata if hasattr(each, word)), None)
            for limit, word in _LIMITS.items()
        }
        default = field.get_default(call_default_factory=True)
        found.append(Knob.of(name, field.annotation, default, field.description or "", **limits))
    return tuple(found)


def checked(model: type[Model], values: Mapping[str, Any], of: str) -> Model:
    """Make the model from what a person wrote; the first mistake is an error that says what would be right.

    Parameters
    ----------
    of : what the values are settings of, for error messages
    """
    for each in knobs_of(model):  # pydantic would take "yes" for true, and true for 1
        value = values.get(each.name)
        if each.type is bool or isinstance(value, bool):
            each.check(values.get(each.name, each.default))
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise UnknownNameError(f"setting of {of}", name, model.model_fields) from None
        for each in knobs_of(model):
            if each.name == name:
                each.check(first["input"])
        raise InputError(f"{name}: {first['msg']}, not {first['input']!r}") from None
