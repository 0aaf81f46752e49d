"""Label shift that changes along the stream: FTH and FLH-FTL (Baby et al., NeurIPS 2023).

The stream is taken in steps of a few samples. After step t, BBSE turns the head's mean prediction into an estimate
q_t of that step's class shares, which is noisy. The next step is answered with shares made of all estimates so far:

- FTH, follow the history: their mean.
- FLH-FTL, follow the leading history: a mixture of experts. The expert that joined at step s is the mean of q_s, ...,
  q_t, so an old expert is steady and a young one quick. When q_t arrives, each expert is judged by what it had said
  before: w_s is multiplied by exp(-|expert_s - q_t|^2 / K), K classes; the weights are scaled to (t - 1)/t, and the
  expert that joins now, q_t itself, gets 1/t.

The authors' program numbers experts by the length of their window instead: the newcomer is the mean of everything,
and the longest of the earlier windows is never judged; and it cuts each estimate at zero, which biases their mean.
``flh-ftl-release`` repeats that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.core.heads import probabilities
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.methods.base import Client, Floats, Method
from btfl.methods.card import GREEN, Card
from btfl.methods.label_shift import confusion
from btfl.methods.state import check_keys, count, numbers

Experts = Literal["start", "window"]
_RIDGE = 1e-8  # as in the authors' program: the confusions may be singular
_LEAST_SHARE = 0.01  # of a class's share in training: no class is ever ruled out for good


@dataclass(frozen=True)
class OnlineSharesSettings(Settings):
    """How the stream's class shares are followed."""

    step: int = knob(10, "How many samples a step has, and so each estimate.", least=1)
    prior: float = knob(
        10.0, "Strength of a typical confusion where a class has few validation samples, in samples.", above=0
    )
    clip: bool = knob(
        False, "Whether each estimate is cut at zero, as in the program; the paper's is not, and so without bias."
    )


@dataclass(frozen=True)
class FthSettings(OnlineSharesSettings):
    """How FTH follows."""

    title: ClassVar[str] = "FTH"


@dataclass(frozen=True)
class FlhFtlSettings(OnlineSharesSettings):
    """How FLH-FTL follows."""

    title: ClassVar[str] = "FLH-FTL"

    rate: float | None = knob(None, "How fast an expert that errs loses weight; none: 1 over the classes.", above=0)
    experts: Experts = knob(
        "start", "An expert is the step it joined at (the paper), or the length of its window (the program)."
    )


class OnlineShares(Method):
    """Corrects the global head by class shares that follow the stream, known before the sample that they correct.

    Steps are counted in samples, so the answers do not depend on how the stream is cut into batches. Shares stay above
    a hundredth of those in training.
    """

    needs: ClassVar[tuple[str, ...]] = ("global_class_counts", "validation_features", "validation_labels")
    settings: OnlineSharesSettings

    shares: Floats
    """What the next sample is corrected by."""
    _step: list[Floats]

    def __init__(
        self, client: Client | ClientBundle, settings: OnlineSharesSettings | None = None, **changes: Any
    ) -> None:
        super().__init__(client, settings, **changes)
        statistics = self.bundle.statistics
        counts = statistics["global_class_counts"] + 1.0  # a class that nobody has is still possible
        self.source: Floats = counts / counts.sum()
        believed = probabilities(self.bundle.global_head, statistics["validation_features"])
        self.confusion = confusion(believed, statistics["validation_labels"], self.settings.prior)
        square = self.confusion.T @ self.confusion + _RIDGE * np.eye(self.bundle.classes)
        self._solver: Floats = np.asarray(np.linalg.solve(square, self.confusion.T), dtype=np.float64)
        self.reset()

    @abstractmethod
    def follow(self, estimate: Floats) -> Floats:
        """Take in the estimate of the step that has ended; return the shares for the next one."""

    def estimate(self, believed: Floats) -> Floats:
        """Return BBSE's class shares of (samples, classes) predictions: q with C q nearest to their mean."""
        shares: Floats = self._solver @ believed.mean(axis=0)
        if self.settings.clip:
            shares = np.maximum(shares, 0.0)
            shares /= shares.sum()
        return shares

    def predict(self, batch: ArrayLike) -> Floats:
        """Correct each sample of (samples, dimensions) features; a step that is complete changes the shares."""
        answers = []
        for row in probabilities(self.bundle.global_head, as_features(batch, self.bundle.dimensions)):
            corrected = row * self.shares / self.source
            answers.append(corrected / corrected.sum())
            self._step.append(row)
            if len(self._step) == self.settings.step:
                shares = np.maximum(self.follow(self.estimate(np.stack(self._step))), _LEAST_SHARE * self.source)
                self.shares, self._step = shares / shares.sum(), []
        return np.stack(answers)

    @property
    def state(self) -> dict[str, Any]:
        """The predictions of the step that has begun, and the shares."""
        return {"step": [row.tolist() for row in self._step], "shares": self.shares.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, self.state)
        classes = self.bundle.classes
        begun = len(state["step"]) if isinstance(state["step"], list) else 1
        step = numbers("step", state["step"], (begun, classes))
        shares = numbers("shares", state["shares"], (classes,))
        if (step < 0).any() or (shares <= 0).any() or begun >= self.settings.step:
            raise InputError("the state is out of range: a step that is complete, or shares that are not above 0")
        self._restore_history(state)
        self._step, self.shares, self.found = list(step), shares, None

    @abstractmethod
    def _restore_history(self, state: Mapping[str, Any]) -> None:
        """Read what ``follow`` remembers, all of it or, if any is wrong, nothing."""

    def reset(self) -> None:
        """Forget the stream."""
        super().reset()
        self._step, self.shares = [], self.source


class Fth(OnlineShares):
    """The mean of all steps' estimates."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "fth",
            "FTH",
            "the global head, corrected for the mean of BBSE's estimates of all steps so far",
            "Baby et al., NeurIPS 2023",
            GREEN,
            "h",
            "dotted",
        ),
    )
    settings_class: ClassVar[type[Settings]] = FthSettings
    _total: Floats
    _steps: int

    def follow(self, estimate: Floats) -> Floats:
        """Return the mean of all estimates."""
        self._total, self._steps = self._total + estimate, self._steps + 1
        return self._total / self._steps

    @property
    def state(self) -> dict[str, Any]:
        """The predictions of the step that has begun, the shares, and the sum of the estimates."""
        return {**super().state, "total": self._total.tolist(), "steps": self._steps}

    def _restore_history(self, state: Mapping[str, Any]) -> None:
        steps = count("steps", state["steps"])
        self._total, self._steps = numbers("total", state["total"], (self.bundle.classes,)), steps

    def reset(self) -> None:
        """Forget the stream."""
        super().reset()
        self._total, self._steps = np.zeros(self.bundle.classes), 0


class FlhFtl(OnlineShares):
    """A mixture of means over the last steps, each weighed by how well it has foretold the estimates."""

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "flh-ftl",
            "FLH-FTL",
            "the global head, corrected for a mixture of averages of BBSE's estimates over past steps",
            "Baby et al., NeurIPS 2023",
            GREEN,
            "X",
        ),
        Card(
            "flh-ftl-release",
            "FLH-FTL (release)",
            colour=GREEN,
            marker="X open",
            line="dashed",
            settings={"experts": "window", "clip": True},
        ),
    )
    settings_class: ClassVar[type[Settings]] = FlhFtlSettings
    settings: FlhFtlSettings
    _estimates: Floats
    _weights: Floats

    def follow(self, estimate: Floats) -> Floats:
        """Judge the experts by the estimate, let a new one join, and return their mixture."""
        rate = 1.0 / self.bundle.classes if self.settings.rate is None else self.settings.rate
        if len(self._estimates):
            errors = ((self._said() - estimate) ** 2).sum(axis=1)
            if self.settings.experts == "window":
                errors[-1] = 0.0  # the program's loop ends one short
            weights = self._weights * np.exp(-rate * errors)
            share = 1.0 / (len(weights) + 1)
            self._weights = np.append(weights / weights.sum() * (1 - share), share)
        else:
            self._weights = np.ones(1)
        self._estimates = np.concatenate([self._estimates, estimate[None]])
        return np.asarray(self._weights @ self._said())

    def _said(self) -> Floats:
        """Return (experts, classes): the mean of the estimates from each step on, or of the last 1, 2, ..."""
        ending = np.cumsum(self._estimates[::-1], axis=0) / np.arange(1, len(self._estimates) + 1)[:, None]
        return np.asarray(ending if self.settings.experts == "window" else ending[::-1])

    @property
    def state(self) -> dict[str, Any]:
        """The predictions of the step that has begun, the shares, all estimates, and the experts' weights."""
        return {**super().state, "estimates": self._estimates.tolist(), "weights": self._weights.tolist()}

    def _restore_history(self, state: Mapping[str, Any]) -> None:
        steps = len(state["estimates"]) if isinstance(state["estimates"], list) else 1
        estimates = numbers("estimates", state["estimates"], (steps, self.bundle.classes))
        weights = numbers("weights", state["weights"], (steps,))
        if (weights < 0).any() or (not weights.any() if steps else state["weights"] != []):
            raise InputError("the state is out of range: weights must not be negative, nor all zero")
        self._estimates, self._weights = estimates, weights

    def reset(self) -> None:
        """Forget the stream."""
        super().reset()
        self._estimates, self._weights = np.empty((0, self.bundle.classes)), np.empty(0)
