"""Settings that say their own type, range, default and meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl.errors import InputError, UnknownNameError
from btfl.knobs import Knob, Settings, knob


@dataclass(frozen=True)
class Fading(Settings):
    title: ClassVar[str] = "fading"

    rate: float = knob(0.1, "Share of the memory that a sample replaces.", least=0, most=1)
    steps: int = knob(3, "Steps.", least=1)
    width: float | None = knob(None, "Width of the window.", above=0, below=10)
    kind: Literal["slow", "quick"] = knob("slow", "How it fades.")
    shape: str = knob("box", "Shape of the window.", choices=lambda: ("box", "bell"))
    on: bool = knob(True, "Whether it fades at all.")
    names: tuple[str, ...] = knob(("a",), "Whom it concerns.")
    more: Mapping[str, Any] = knob({}, "Anything else.")

    def check(self) -> None:
        if self.kind == "quick" and self.steps > 5:
            raise InputError("fading: what is quick has at most 5 steps")


KNOBS = {each.name: each for each in Fading.knobs()}


def test_a_knob_knows_type_default_meaning_and_range() -> None:
    assert list(KNOBS) == ["rate", "steps", "width", "kind", "shape", "on", "names", "more"]
    assert KNOBS["rate"] == Knob(
        "rate", float, 0.1, "Share of the memory that a sample replaces.", False, least=0, most=1
    )
    assert (KNOBS["width"].type, KNOBS["width"].optional) == (float, True)
    assert {name: each.range for name, each in KNOBS.items()} == {
        "rate": "a number from 0 to 1",
        "steps": "a whole number of at least 1",
        "width": "a number above 0 and below 10, or none",
        "kind": "one of 'slow', 'quick'",
        "shape": "one of 'box', 'bell'",
        "on": "true or false",
        "names": "a list",
        "more": "a table",
    }


@given(st.floats())
def test_a_number_is_taken_exactly_if_it_is_in_the_range(value: float) -> None:
    if 0 <= value <= 1:
        assert Fading(rate=value).rate == value
    else:
        with pytest.raises(InputError, match="fading: rate must be a number from 0 to 1"):
            Fading(rate=value)


@given(st.floats(allow_nan=False) | st.none())
def test_excluded_ends_are_excluded(value: float | None) -> None:
    if value is None or 0 < value < 10:
        assert Fading(width=value).width == value
    else:
        with pytest.raises(InputError, match="above 0 and below 10, or none"):
            Fading(width=value)


@given(st.integers(1))
def test_a_whole_number_may_stand_for_any_number_but_not_the_reverse(value: int) -> None:
    assert Fading(steps=value).steps == value
    for wrong in (value + 0.5, float("nan"), math.inf, True, str(value), None):
        with pytest.raises(InputError, match="steps must be a whole number of at least 1"):
            Fading(steps=wrong)  # type: ignore[arg-type]


@given(st.text())
def test_a_name_that_is_none_of_the_choices_is_named(name: str) -> None:
    for field in ("kind", "shape"):
        if name in KNOBS[field].choices:
            continue
        with pytest.raises(UnknownNameError, match=f"unknown {field} of fading"):
            Fading(**{field: name})  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="Did you mean quick"):
        Fading(kind="quik")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"on": 1}, {"names": "abc"}, {"names": 3}, {"more": []}, {"kind": 3}, {"rate": True}, {"rate": None}]
)
def test_values_of_another_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"fading: {next(iter(wrong))} must be"):
        Fading(**wrong)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match="at most 5 steps"):
        Fading(kind="quick", steps=6)


def test_a_mistyped_setting_gets_the_nearest() -> None:
    assert Fading.make(steps=4) == Fading(steps=4)
    with pytest.raises(UnknownNameError, match=r"unknown setting of fading 'stps'\. Did you mean steps"):
        Fading.make(stps=4)


def test_what_is_written_down_makes_the_same_settings_again() -> None:
    settings = Fading(rate=0.5, names=("b", "c"), more={"x": 1})
    assert settings.as_dict() == vars(settings)
    assert Fading.make(**settings.as_dict()) == settings
    assert Fading().more is not Fading().more  # nobody's changes reach another
