"""Averages that withstand liars: facts that each must satisfy, whatever the honest clients sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.engines.aggregate import Averaged
from btfl.engines.averaging import Averaging
from btfl.engines.naming import misnamed
from btfl.engines.robust import COORDINATEWISE, WEIGHTINGS
from btfl.engines.rows import Rows
from btfl.engines.screening import SIZE, screen, smaller_camp
from btfl.recipes.base import Update
from btfl.recipes.settings import TrainingSettings
from btfl.runs.standing import Standing

DEFENCES = sorted({*COORDINATEWISE, *WEIGHTINGS} - {"clip"})


def updates(seed: int, clients: int, width: int = 30, spread: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (1.0 + spread * rng.normal(size=(clients, width))).astype(np.float32)


def average(sent: np.ndarray, defence: str, *, liars: float = 0.2, standing: Standing | None = None) -> np.ndarray:
    shared = {"a": np.zeros(10, np.float32), "b": np.zeros((sent.shape[1] - 10, 1), np.float32)}
    made = Averaging(shared, TrainingSettings.make(defence=defence, liars=liars), 1, standing or Standing())
    for client, row in enumerate(sent):
        made.add(client, Update({"a": row[:10], "b": row[10:, None]}, samples=5))
    weights = made.result().weights
    return np.concatenate([weights["a"], weights["b"][:, 0]])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(5, 15), factor=st.sampled_from([-1e4, -50.0, 100.0, 1e6]))
@pytest.mark.parametrize("defence", [*DEFENCES, "screen"])
def test_liars_far_away_move_it_little(defence: str, seed: int, clients: int, factor: float) -> None:
    sent = updates(seed, clients)
    liars = max(clients // 5, 1)
    honest = sent[liars:].mean(axis=0)
    sent[:liars] *= np.float32(factor)
    found = average(sent, defence, liars=liars / clients)
    assert np.linalg.norm(found - honest) < 0.7 * np.linalg.norm(honest)


@pytest.mark.parametrize("defence", [*DEFENCES, "clip", "screen", "none"])
def test_equal_updates_are_their_own_average(defence: str) -> None:
    sent = np.repeat(updates(0, 1), 6, axis=0)
    np.testing.assert_allclose(average(sent, defence), sent[0], rtol=1e-6)


@pytest.mark.parametrize("defence", sorted(COORDINATEWISE))
def test_coordinatewise_ones_stay_within_the_honest_range(defence: str) -> None:
    sent = updates(1, 9)
    sent[:3] = 1e8
    found = average(sent, defence, liars=0.34)
    assert (found <= sent[3:].max(axis=0)).all()
    assert (found >= sent[3:].min(axis=0)).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(1, 12), spread=st.floats(0.05, 3.0))
def test_the_screen_changes_nothing_where_nobody_is_far_off(seed: int, clients: int, spread: float) -> None:
    sent = updates(seed, clients, width=2000, spread=spread)
    assert average(sent, "screen").tobytes() == average(sent, "none").tobytes()


def test_a_screened_update_is_as_one_that_never_came() -> None:
    sent = updates(3, 8)
    sent[5] *= np.float32(2 * SIZE)
    assert average(sent, "screen").tobytes() == average(np.delete(sent, 5, axis=0), "none").tobytes()


def leaning_round(clients: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Weights that were sent, and honest steps from there: each makes the weights longer, and has a way of its own."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=400)
    return shared, 0.1 * shared + 0.3 * rng.normal(size=(clients, 400))


def averaged(shared: np.ndarray, steps: np.ndarray, standing: Standing | None = None) -> Averaged:
    weights = {"w": shared.astype(np.float32)}
    made = Averaging(weights, TrainingSettings(defence="screen"), 2, standing or Standing())
    for client, step in enumerate(steps):
        made.add(client, Update({"w": (shared + step).astype(np.float32)}, samples=5))
    return made.result()


@pytest.mark.parametrize("liars", [[4], [0, 3, 4, 9]])
def test_of_weights_times_a_hundred_the_honest_part_is_kept(liars: list[int]) -> None:
    shared, steps = leaning_round()
    sent = steps.copy()
    sent[liars] = 100 * (shared + steps[liars]) - shared
    found = averaged(shared, sent)
    assert set(found.cut) == set(liars)
    assert not found.left_out
    honest, without = steps.mean(axis=0), np.delete(steps, liars, axis=0).mean(axis=0)
    error = np.linalg.norm(found.weights["w"] - shared - honest)
    assert error < 0.5 * np.linalg.norm(without - honest)


@pytest.mark.parametrize("factor", [1e3, 1e9])
def test_what_is_too_long_and_says_nothing_of_the_weights_is_left_out(factor: float) -> None:
    shared, steps = leaning_round()
    noise = np.random.default_rng(1).normal(size=400)
    noise -= shared * (noise @ shared) / (shared @ shared)
    for lie in (noise, -steps[4]):
        sent = steps.copy()
        sent[4] = factor * lie
        found = averaged(shared, sent)
        assert set(found.left_out) == {4}
        assert not found.cut
        expected = averaged(shared, np.delete(steps, 4, axis=0)).weights["w"]
        assert found.weights["w"].tobytes() == expected.tobytes()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(1e3, 1e12))
def test_no_length_makes_a_liar_count_for_more_than_the_others(seed: int, factor: float) -> None:
    shared, steps = leaning_round(seed=seed)
    sent = steps.copy()
    sent[2] *= factor
    moved = averaged(shared, sent).weights["w"] - averaged(shared, np.delete(steps, 2, axis=0)).weights["w"]
    assert np.linalg.norm(moved) < 2.5 / 10 * np.median(np.linalg.norm(steps, axis=1))


def test_copies_that_are_far_too_long_count_once_after_they_are_cut() -> None:
    shared, steps = leaning_round()
    sent = steps.copy()
    sent[[1, 5, 6]] = 1e4 * steps[1]
    assert set(averaged(shared, sent).left_out) == {5, 6}


def test_copies_count_once() -> None:
    sent = updates(4, 8)
    sent[6] = sent[7] = sent[5]
    assert average(sent, "screen").tobytes() == average(sent[:6], "none").tobytes()


def test_who_is_turned_round_is_left_out_from_the_second_round_on() -> None:
    clients = range(10)
    cosines = np.where(np.arange(10) == 4, -0.2, 0.2) + 0.01 * np.arange(10)
    once = Standing(usual=1.0).after(clients, cosines, np.ones(10))
    assert once.turned(clients) == set()
    assert once.after(clients, cosines, np.ones(10)).turned(clients) == {4}
    assert Standing.from_json(once.as_json()) == once


def test_who_is_against_the_majority_in_the_first_round_is_suspected_until_it_is_cleared() -> None:
    sent = updates(5, 10).astype(np.float64)
    sent[[1, 6, 8]] *= -1
    assert smaller_camp(sent @ sent.T) == [1, 6, 8]
    clients, good, ones = range(10), np.full(10, 0.2), np.ones(10)
    suspected = Standing(usual=1.0).suspecting([1, 6, 8]).after(clients, good, ones)
    assert suspected.turned(clients) == {1, 6, 8}
    assert suspected.after(clients, good, ones).turned(clients) == set()


def test_one_client_alone_against_all_others_is_no_camp() -> None:
    sent = np.random.default_rng(1).normal(size=(10, 500)) + 1.0
    sent[4] *= -1  # a single class nobody else has looks like that, too
    assert smaller_camp(sent @ sent.T) == []


def test_an_honest_one_of_many_may_be_farther_off_than_one_of_few() -> None:
    """By the deviation of those beyond the median: what is far among ten is an extreme value among a thousand."""
    for clients, found in ((10, {0}), (1000, set[int]())):
        cosines = np.linspace(0.026, 0.174, clients)
        cosines[0] = -0.08
        ones = np.ones(clients)
        standing = Standing(usual=1.0).after(range(clients), cosines, ones).after(range(clients), cosines, ones)
        assert standing.turned(range(clients)) == found


def test_liars_who_lead_training_backwards_are_found_from_where_most_went() -> None:
    clients, ones = range(10), np.ones(10)
    forward = np.where(np.arange(10) < 2, -0.2, 0.2) + 0.01 * np.arange(10)
    standing = Standing(usual=1.0).after(clients, forward, ones).after(clients, -forward, ones)
    assert standing.turned(clients) == {0, 1}


def test_a_long_update_is_compared_with_what_was_usual_before() -> None:
    """Where training has nothing left to learn, one sample that is still wrong makes an update many times as long."""
    sent = updates(6, 8)
    sent[1:] *= np.float32(1e-3)
    assert average(sent, "screen", standing=Standing(usual=1.0)).tobytes() == average(sent, "none").tobytes()
    assert average(sent, "screen").tobytes() == average(sent[1:], "none").tobytes()


def test_clients_of_one_class_are_no_copies_of_each_other() -> None:
    sent = updates(7, 8)
    sent[3] = sent[2] * np.float32(1.03)
    assert average(sent, "screen").tobytes() == average(sent, "none").tobytes()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(6, 16), liars=st.integers(0, 5))
def test_who_calls_classes_by_other_names_is_found_by_the_rows_of_the_head(seed: int, clients: int, liars: int) -> None:
    rng, classes = np.random.default_rng(seed), 5
    means = np.abs(rng.normal(size=(classes, 40)))
    steps = means - means.mean(axis=0) / 2 + 0.2 * rng.normal(size=(clients, classes, 40))
    liars = min(liars, (clients - 1) // 3)
    steps[:liars] = steps[:liars, ::-1]
    steps[:liars, 2] += means[0]
    assert set(misnamed(steps)) == set(range(liars))


def test_where_clients_have_no_class_in_common_nobody_is_misnamed() -> None:
    rng = np.random.default_rng(0)
    steps = -np.abs(rng.normal(size=(8, 8, 20)))
    steps[np.arange(8), np.arange(8)] *= -1
    assert misnamed(steps) == []


@pytest.mark.parametrize("clients", [600, 1100])
def test_many_clients_are_compared_some_at_a_time(clients: int) -> None:
    sent = updates(8, clients, width=12)
    sent[clients - 5] *= np.float32(1e3)
    assert average(sent, "screen").tobytes() == average(np.delete(sent, clients - 5, axis=0), "none").tobytes()


def test_an_older_checkpoint_is_read() -> None:
    found = Standing.from_json({"clients": {"3": [2, 0.5]}, "suspects": [3], "restarted": False})
    assert found.leanings() == {3: 0.25}
    assert Standing.from_json(found.as_json()) == found
    assert Standing.from_json(None) == Standing()


def test_where_the_median_client_hardly_leans_nobody_is_turned_round() -> None:
    # the honest clients of cifar10-cnn-dir0.1-authors after its last round
    leanings = [0.008, 0.054, 0.021, 0.1, 0.067, 0.029, 0.063, 0.065, -0.039, 0.048]
    leanings += [0.067, 0.056, 0.018, 0.076, 0.055, 0.063, -0.023, 0.045, 0.063, -0.02]
    clients, standing = range(20), Standing(usual=1.0)
    for _ in range(3):
        standing = standing.after(clients, np.array(leanings), np.ones(20))
    assert standing.turned(clients) == set()


def test_where_nobody_agrees_nobody_is_turned_round() -> None:
    clients, cosines = range(10), np.linspace(-0.1, 0.1, 10)
    ones = np.ones(10)
    assert Standing(usual=1.0).after(clients, cosines, ones).after(clients, cosines, ones).turned(clients) == set()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(1, 10), liars=st.integers(0, 9))
def test_never_half_of_the_clients_are_left_out(seed: int, clients: int, liars: int) -> None:
    sent = updates(seed, clients).astype(np.float64)
    sent[:liars] *= 1e5
    lengths = np.linalg.norm(sent, axis=1)
    usual = float(np.median(lengths))
    found = screen(sent.sum(axis=1), lengths, usual, lambda one, other, reach: False, turned=range(min(liars, clients)))
    assert 2 * len(found) < clients


def test_rows_are_the_same_from_memory_and_from_disk() -> None:
    rng = np.random.default_rng(0)
    kinds = np.float32, np.float64
    uploads = [{"w": rng.normal(size=(40, 3)).astype(kind), "b": rng.normal(size=7).astype(kind)} for kind in kinds * 3]
    memory, disk = Rows(), Rows(in_memory=600)
    for upload in uploads:
        memory.add(upload)
        disk.add(upload)
    centre = uploads[0]
    places = range(6)
    assert memory.gram(places, centre).tobytes() == disk.gram(places, centre).tobytes()
    assert [part.tobytes() for part in memory.paths(centre)] == [part.tobytes() for part in disk.paths(centre)]
    for rows in (memory, disk):
        assert rows.near(0, 0, 1e-9)
        assert not rows.near(0, 3, 1e-9)
    for place, upload in enumerate(uploads):
        for name, array in upload.items():
            np.testing.assert_array_equal(disk.arrays(place)[name], array, strict=True)


def test_training_does_not_begin_again_where_fewer_rounds_are_left_than_were_done() -> None:
    shared, steps = leaning_round()
    steps[:4] *= -1
    for rounds in (20, 4, 3):
        about, standing = TrainingSettings(defence="screen", rounds=rounds), Standing()
        for round_ in (1, 2):
            made = Averaging({"w": shared}, about, round_, standing, untrained=False)
            for client, step in enumerate(steps):
                made.add(client, Update({"w": (shared + step).astype(np.float32)}, samples=3))
            found = made.result()
            standing = found.standing
        assert set(found.left_out) == {0, 1, 2, 3}
        assert found.restart == (rounds > 3)


def test_many_who_turn_their_updates_round_are_found_and_training_begins_again() -> None:
    rng, clients = np.random.default_rng(0), 10
    shared = {"w": rng.normal(size=400).astype(np.float32)}
    standing = Standing()
    for round_ in (1, 2):
        made = Averaging(shared, TrainingSettings(defence="screen"), round_, standing)
        for client in range(clients):
            step = 0.3 * shared["w"] + rng.normal(size=400)  # honest clients are opposed as often as not
            sign = -1 if client < 4 else 1
            made.add(client, Update({"w": (shared["w"] + sign * step).astype(np.float32)}, samples=3))
        found = made.result()
        standing = found.standing
    assert set(found.left_out) == {0, 1, 2, 3}
    assert found.restart
    again = Averaging(shared, TrainingSettings(defence="screen"), 3, standing)
    for client in range(clients):
        again.add(client, Update({"w": shared["w"] + np.float32(client + 1)}, samples=3))
    after = again.result()
    assert not after.restart
    assert set(after.left_out) == {0, 1, 2, 3}  # until their updates speak for them
