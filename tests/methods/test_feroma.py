"""FEROMA's assignment: a window by hand, and streams of one's own and of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from btfl import ClientBundle, Summary
from btfl.errors import InputError
from btfl.methods.feroma import Feroma
from gaussians import World


def on_a_line(**settings: Any) -> Feroma:
    """Everyone's features are -4, 0, 0, 4, the client's own 0 and 4; the heads are sure of class 1 and class 0."""
    own, rest = Summary.of([[0.0], [4.0]], [0, 1], 2), Summary.of([[-4.0], [0.0]], [0, 1], 2)
    heads = (np.zeros((2, 1)), np.array([-50.0, 0.0])), (np.zeros((2, 1)), np.array([0.0, -50.0]))
    return Feroma(ClientBundle.of(*heads, own, own + rest, features=[[0.0], [4.0]]), **settings)


def test_a_window_by_hand() -> None:
    # Everyone: mean 0, variance 32/4 = 8, so z / sqrt(8). Own: mean 2, deviation 2, both 1/sqrt(2) of everyone's.
    method = on_a_line(window=2)
    np.testing.assert_allclose(method.global_profile, [0, 1])
    np.testing.assert_allclose(np.abs(method.own_profile), [2**-0.5, 2**-0.5])
    answers = method.predict([[4.0], [0.0], [-4.0], [-4.0]])
    # Windows {4}, {4, 0}, {0, -4}, {-4, -4}: means 4, 2, -2, -4 and deviations 0, 2, 2, 0, over sqrt(8).
    profiles = np.array([[4, 0], [2, 2], [-2, 2], [-4, 0]]) / np.sqrt(8)
    own = np.linalg.norm(profiles - [2**-0.5, 2**-0.5], axis=1)
    everyone = np.linalg.norm(profiles - [0, 1], axis=1)
    np.testing.assert_allclose(method.trace["own_distance"], own, atol=1e-12)
    np.testing.assert_allclose(method.trace["global_distance"], everyone, atol=1e-12)
    assert method.trace["e"].tolist() == [0, 0, 1, 1]
    assert answers.argmax(axis=1).tolist() == [0, 0, 1, 1]
    weighted = on_a_line(window=2, assignment="weighted")
    weighted.predict([[4.0], [0.0], [-4.0], [-4.0]])
    np.testing.assert_allclose(weighted.trace["e"], (1 / everyone) / (1 / everyone + 1 / own), atol=1e-6)


WORLD = World(means=np.array([[4.0, 0.0], [-2.0, 3.5], [-2.0, -3.5]]), own=np.array([0.9, 0.05, 0.05]))


def test_own_samples_get_the_personal_head_and_others_the_global_one() -> None:
    bundle = WORLD.bundle()
    e = []
    for shares in (WORLD.own, WORLD.others):
        method = Feroma(bundle)
        method.predict(WORLD.sample(shares, 400, 4)[0])
        e.append(method.trace["e"][50:].mean())
    assert e[0] < 0.1
    assert e[1] > 0.9


def test_the_window_forgets() -> None:
    method = Feroma(WORLD.bundle(), window=30)
    method.predict(WORLD.sample(WORLD.others, 300, 5)[0])
    method.predict(WORLD.sample(WORLD.own, 60, 6)[0])
    assert method.trace["e"][-1] == 0.0
    assert len(method.state["recent"]) == 30


def test_a_window_above_the_setting_is_refused() -> None:
    many = Feroma(WORLD.bundle(), window=30)
    many.predict(WORLD.sample(WORLD.own, 30, 5)[0])
    with pytest.raises(InputError, match="above the setting window"):
        Feroma(WORLD.bundle(), window=20).restore(many.state)
