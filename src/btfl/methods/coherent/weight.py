"""What e is made of: the memory's judgement of a sample, and its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from btfl.core.arithmetic import Arithmetic
from btfl.methods.coherent.memory import Judgement

Weight = Callable[[Arithmetic, Judgement, Any], Any]


def predictive(xp: Arithmetic, judged: Judgement, log_tau: Any) -> Any:
    """P(the sample is external): a/(a + b tau) within a mixture."""
    return judged.e


def expectation(xp: Arithmetic, judged: Judgement, log_tau: Any) -> Any:
    """The paper's expectation over m within a mixture (ablation)."""
    return judged.all_external + judged.mixed * xp.expected_weight(judged.a, judged.b, log_tau)


WEIGHTS: Mapping[str, Weight] = {"predictive": predictive, "expectation": expectation}
