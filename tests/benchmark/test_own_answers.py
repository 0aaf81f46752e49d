"""What a method of the user's own may get wrong in its answer is one sentence that names it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from btfl import Method
from btfl.benchmark.evaluate import for_samples, run_stream
from btfl.data.streams import Stream
from btfl.errors import InputError, UnknownNameError
from btfl.methods.base import Column
from btfl.methods.card import Card
from btfl.methods.registry import Variant
from making import make_bundle

BUNDLE = make_bundle()
LABELS = np.arange(12) % BUNDLE.classes
STREAM = Stream("original_ind", np.zeros((12, 4), np.float32), LABELS, np.zeros(12, bool))


class Answers(Method):
    """Gives what it is told to."""

    answer: Any = None

    def predict(self, batch: Any) -> Any:
        return self.answer


def run(method: Method) -> None:
    variant = Variant("mine:Own", type(method), Card("mine:Own", "Own", "its own"))
    run_stream(variant, method, 0, STREAM, np.zeros((12, BUNDLE.dimensions)), 12)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, r"'mine:Own' gave a NoneType where an array \(n, classes\) is needed"),
        ([[0.5, 0.5]] * 12, "'mine:Own' gave a list where an array"),
        (np.ones(12), r"'mine:Own' gave \(12,\) for 12 samples"),
        (np.ones((11, BUNDLE.classes)), r"for 12 samples, not \(n, classes\)"),
        (np.ones((12, BUNDLE.classes - 1)), r"for 12 samples, not \(n, classes\)"),
        (np.full((12, BUNDLE.classes), np.nan), "'mine:Own' gave probabilities that are not finite"),
    ],
)
def test_an_answer_that_cannot_be_used_is_named(answer: Any, said: str) -> None:
    method = Answers(BUNDLE)
    method.answer = answer
    with pytest.raises(InputError, match=said):
        run(method)


def test_a_trace_that_was_declared_and_not_found_says_what_to_set() -> None:
    class Traced(Answers):
        columns: ClassVar = {"e": Column("weight of the global head"), "surer": Column("whether it is surer")}
        given: tuple[Any, ...] | None = None

        def predict(self, batch: Any) -> Any:
            self.found = self.given
            return super().predict(batch)

    method = Traced(BUNDLE)
    method.answer = np.ones((12, BUNDLE.classes))
    with pytest.raises(InputError, match=r"call predict first, which sets self\.found in a method of your own"):
        run(method)
    method.given = (np.zeros(12),)
    with pytest.raises(InputError, match=r"Traced found 1 values, but its columns are e, surer: self\.found"):
        run(method)


def test_a_method_without_settings_says_so() -> None:
    with pytest.raises(UnknownNameError, match=r"'e'\. There are none\."):
        Answers(BUNDLE, e=0.5)


def test_no_method_at_all_is_no_matter_of_the_samples() -> None:
    with pytest.raises(InputError, match="there is no method to compare: name at least one"):
        for_samples((), "images", "mlp")
