"""Which clients' sums are left out of everyone's, and that nothing changes where none is."""

from __future__ import annotations

import numpy as np
import pytest

from btfl.core.heads import LinearHead
from btfl.core.summary import Summary
from btfl.engines.totals import Totalling
from btfl.recipes.settings import TrainingSettings

CLASSES, WIDTH = 4, 8
MEANS = 4.0 * np.eye(CLASSES, WIDTH)
HEAD = LinearHead(MEANS, -0.5 * (MEANS**2).sum(axis=1))


def data(seed: int, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, size=count, p=rng.dirichlet(np.full(CLASSES, 0.5)))
    return np.maximum(MEANS[labels] + rng.normal(size=(count, WIDTH)), 0).astype(np.float32), labels


def total(summaries: list[Summary], defence: str = "screen") -> tuple[Summary, dict[int, str]]:
    made = Totalling(TrainingSettings.make(defence=defence), HEAD)
    for client, summary in enumerate(summaries):
        made.add(client, summary)
    return made.result()


def honest(clients: int) -> list[Summary]:
    return [Summary.of(*data(seed), CLASSES) for seed in range(clients)]


def bytes_of(summary: Summary) -> list[bytes]:
    return [summary.arrays[name].tobytes() for name in sorted(summary.arrays)]


@pytest.mark.parametrize("clients", [1, 3, 4, 25])
def test_honest_sums_are_added_up_to_the_bit(clients: int) -> None:
    found, left_out = total(honest(clients))
    assert left_out == {}
    assert bytes_of(found) == bytes_of(Summary.total(honest(clients)))


@pytest.mark.parametrize("lie", ["reversed", "next class", "large", "small"])
@pytest.mark.parametrize("liars", [1, 4])
def test_liars_are_as_if_they_had_not_come(lie: str, liars: int) -> None:
    summaries = honest(10)
    for client in range(liars):
        features, labels = data(client)
        factor = {"large": 1000.0, "small": 0.01}.get(lie, 1.0)
        told = {"reversed": CLASSES - 1 - labels, "next class": (labels + 1) % CLASSES}.get(lie, labels)
        summaries[client] = Summary.of(features * factor, told, CLASSES)
    found, left_out = total(summaries)
    assert set(left_out) == set(range(liars))
    assert bytes_of(found) == bytes_of(Summary.total(summaries[liars:]))


def test_without_a_defence_everything_is_added_up() -> None:
    summaries = honest(6)
    summaries[0] = Summary.of(data(0)[0] * 1000, data(0)[1], CLASSES)
    assert bytes_of(total(summaries, "none")[0]) == bytes_of(Summary.total(summaries))


def test_a_class_that_few_have_is_not_judged_by_a_head_that_has_not_learned_it() -> None:
    """Two clients alone have class 3, and the head takes it for class 0."""
    weight = MEANS.copy()
    weight[3] = 0.0
    made = Totalling(TrainingSettings(), LinearHead(weight, -0.5 * (weight**2).sum(axis=1)))
    rng = np.random.default_rng(0)
    for client in range(8):
        labels = rng.integers(3, size=40) if client > 1 else np.full(40, 3)
        features = np.maximum(MEANS[labels] + rng.normal(size=(40, WIDTH)), 0).astype(np.float32)
        if client < 2:
            features[:, 0] += 9.0
        made.add(client, Summary.of(features, labels, CLASSES))
    assert made.result()[1] == {}


def test_sums_with_noise_of_the_clients_own_are_not_compared() -> None:
    made = Totalling(TrainingSettings(), HEAD, exact=False)
    for client, summary in enumerate(honest(5)):
        made.add(client, summary if client else Summary.of(data(0)[0] * 1000, data(0)[1], CLASSES))
    assert made.result()[1] == {}
