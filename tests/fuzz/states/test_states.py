"""Damaged states: each is refused in one sentence and changes nothing, or is one with which a method predicts."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from btfl.errors import InputError
from btfl.methods.base import Method
from btfl.methods.heads import Oracle
from btfl.methods.registry import METHODS, find_method
from btfl.methods.state import pack, unpack
from fuzz.files.damage import damaged_bytes, damaged_json
from making import make_client, make_images, make_stream

VARIANTS = (
    *METHODS, "em[window=8]", "bbse[window=8]", "t3a[supports=3]", "tent[steps=2]", "coherent[memory=soft]",
    "coherent[memory=events]", "btfl[count=after]", "btfl[prune_above=5]", "coherent[forgetting=0.5]",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 1e-300, 5e-324, -0.0, 1e3, 1e6, 2.5e7, 1e12, 1e17, 1e40, 1e300, 1e308, -1e308, 2**62, 2**70, 10**400
)  # fmt: skip
SEEN = 8


def answers(method: Method, samples: np.ndarray) -> np.ndarray:
    if isinstance(method, Oracle):
        method.tell(np.zeros(len(samples), dtype=np.int64))
    return np.asarray(method.predict(samples))


def packed_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where the packed arrays of a state are."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if isinstance(value[key], dict) and "base64" in value[key]:
            yield value, key
        yield from packed_in(value[key])


def numbers_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where the numbers of a state are: what holds each, and its key."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if isinstance(value[key], int | float):
            yield value, key
        yield from numbers_in(value[key])


def damaged(state: dict[str, Any], rng: random.Random) -> Any:
    """Return another state: with other numbers, weights times a factor, other values anywhere, or other bytes."""
    while True:
        changed = copy.deepcopy(state)
        packed, places = list(packed_in(changed)), list(numbers_in(changed))
        if packed and rng.random() < 0.5:
            parent, key = rng.choice(packed)
            with np.errstate(over="ignore"):
                parent[key] = pack(unpack("it", parent[key]) * np.float32(10.0 ** rng.uniform(-9, 38)))
        elif places and rng.random() < 0.5:
            for parent, key in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 3)))):
                scaled = float(parent[key]) * 10.0 ** rng.uniform(-3, 12)
                parent[key] = rng.choice((scaled, rng.choice(NUMBERS), -parent[key], rng.uniform(-2, 2)))
        else:
            as_bytes = rng.random() < 0.3
            text = damaged_bytes(json.dumps(state).encode(), rng) if as_bytes else damaged_json(state, rng)
            try:
                changed = json.loads(text)
            except (ValueError, RecursionError):
                continue  # no JSON, so no state
        if changed != state:
            return changed


def fuzz(cases: int, seed: int) -> Counter[str]:
    rng, counts, client = random.Random(seed), Counter[str](), make_client()
    features, images = make_stream(client.bundle, 2 * SEEN), make_images(2 * SEEN)
    methods = [one for one in (find_method(name).build(client) for name in VARIANTS) if one.state]
    for method in methods:
        name, samples = repr(method), features if method.takes == "features" else images
        answers(method, samples[:SEEN])
        state = json.loads(json.dumps(method.state))
        for _ in range(-(-cases // len(methods))):
            wrong = damaged(state, rng)
            try:
                method.restore(wrong)
            except InputError:
                assert json.dumps(method.state) == json.dumps(state), f"{name}: refused {wrong}, and yet changed"
                counts["refused"] += 1
                continue
            rows = answers(method, samples[SEEN : SEEN + 2])
            assert np.isfinite(rows).all(), f"{name} predicts NaN from {wrong}"
            np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-5, err_msg=f"{name} from {wrong}")
            assert (rows >= 0).all(), f"{name} from {wrong}"
            json.dumps(method.state, allow_nan=False)
            method.restore(state)
            counts["taken"] += 1
    return counts


def test_damaged_states() -> None:
    counts = fuzz(600, seed=0)
    print(counts)
    assert counts["refused"] > 0.6 * counts.total()


@pytest.mark.slow
def test_ten_thousand_damaged_states() -> None:
    counts = fuzz(10_000, seed=1)
    print(f"{counts.total()} states: {dict(counts)}, 0 raw errors, 0 NaN")
    assert counts.total() >= 10_000
