"""What validation parts choose: a sum over clients, the settings that fit, and how much clients really differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import Calibration, ClientBundle, Summary
from btfl.core.calibration import SHAPES
from btfl.errors import InputError

CLASSES, DIMENSIONS = 4, 12


def draw_clients(
    inverse_kappa: float, clients: int = 20, samples: int = 60, temperature: float = 1.0, seed: int = 0
) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Draw each client's training and validation samples from the hierarchical model with V = temperature * I.

    A temperature above 1: each feature is there several times, so that the model is too sure by that factor.
    """
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 1.2, (CLASSES, DIMENSIONS))
    drawn = []
    for _ in range(clients):
        own = means + np.sqrt(inverse_kappa) * rng.normal(size=means.shape)
        parts = []
        for _ in range(2):
            labels = rng.integers(CLASSES, size=samples)
            parts.append((own[labels] + np.sqrt(temperature) * rng.normal(size=(samples, DIMENSIONS)), labels))
        drawn.append(parts)
    return drawn


def calibrate(drawn: list[list[tuple[np.ndarray, np.ndarray]]]) -> Calibration:
    summaries = [Summary.of(*train, classes=CLASSES) for train, _ in drawn]
    everyone, head = Summary.total(summaries), np.zeros((CLASSES, drawn[0][0][0].shape[1]))
    return Calibration.total(
        Calibration.of(head, head, own, everyone, *validation)
        for own, (_, validation) in zip(summaries, drawn, strict=True)
    )


@pytest.mark.parametrize("inverse_kappa", [0.05, 0.3, 1.0])
def test_kappa_is_recovered(inverse_kappa: float) -> None:
    choice = calibrate(draw_clients(inverse_kappa, clients=60)).choose()
    assert choice is not None
    assert choice.inverse_kappa == pytest.approx(inverse_kappa, rel=0.25)


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1))
def test_clients_that_were_dealt_from_one_pool_do_not_differ(seed: int) -> None:
    choice = calibrate(draw_clients(0.0, seed=seed)).choose()
    assert choice is not None
    assert choice.inverse_kappa == 0 or choice.inverse_kappa < 0.01  # one draw in a thousand is three errors off


def test_marks_that_training_leaves_are_not_taken_for_differences() -> None:
    rng = np.random.default_rng(0)
    drawn = draw_clients(0.0)
    marked = [[(train[0] + rng.normal(0, 0.3, (CLASSES, DIMENSIONS))[train[1]], train[1]), val] for train, val in drawn]
    choice = calibrate(marked).choose()
    assert choice is not None
    assert choice.inverse_kappa == 0


def test_a_model_that_is_too_sure_gets_a_higher_temperature() -> None:
    fitted = calibrate(draw_clients(0.0, clients=30, temperature=3.0)).choose()
    # outliers that the training parts lack: the scores are surer than they should be
    rough = [
        [train, (np.where(np.arange(60)[:, None] % 3 == 0, val[0][::-1], val[0]), val[1])]
        for train, val in draw_clients(0.0, clients=30, temperature=3.0)
    ]
    surer = calibrate(rough).choose()
    assert fitted is not None
    assert surer is not None
    assert fitted.temperature <= 1.5
    assert surer.temperature > fitted.temperature


def test_it_is_a_sum_over_clients() -> None:
    drawn = draw_clients(0.2, clients=3)
    summaries = [Summary.of(*train, classes=CLASSES) for train, _ in drawn]
    everyone, head = Summary.total(summaries), np.eye(CLASSES, DIMENSIONS)
    fits = [Calibration.of(head, 2 * head, own, everyone, *val) for own, (_, val) in zip(summaries, drawn, strict=True)]
    total = fits[0] + fits[1] + fits[2]
    assert total.samples == 180
    for name, array in Calibration.total(fits).arrays.items():
        np.testing.assert_allclose(total.arrays[name], array)
        np.testing.assert_allclose(array, sum(fit.arrays[name] for fit in fits))


def test_with_few_samples_nothing_is_chosen() -> None:
    assert calibrate(draw_clients(1.0, clients=3, samples=20)).choose() is None


def test_it_travels_with_the_total_into_the_bundle() -> None:
    drawn = draw_clients(0.2, clients=3)
    summaries = [Summary.of(*train, classes=CLASSES) for train, _ in drawn]
    everyone = Summary.total(summaries).calibrated(calibrate(drawn))
    again = Summary.from_arrays(everyone.to_arrays())
    assert again.calibration is not None
    head = np.eye(CLASSES, DIMENSIONS)
    bundle = ClientBundle.of(head, head, summaries[0], again)
    found = Calibration.in_statistics(bundle.statistics)
    assert found is not None
    assert found.choose() == everyone.calibration.choose()  # type: ignore[union-attr]


@pytest.mark.parametrize("one", [{"samples": 1}, {"samples": 2}])
def test_one_sample_or_two_are_no_problem(one: dict[str, int]) -> None:
    total = calibrate(draw_clients(0.0, clients=2, **one))
    assert all(np.isfinite(array).all() for array in total.arrays.values())


def test_what_no_validation_part_could_give_is_refused() -> None:
    drawn = draw_clients(0.2, clients=2)
    summaries = [Summary.of(*train, classes=CLASSES) for train, _ in drawn]
    head = np.eye(CLASSES, DIMENSIONS)
    honest = Calibration.of(head, head, summaries[0], Summary.total(summaries), *drawn[0][1])
    honest.check(most_samples=60)
    with pytest.raises(InputError, match="from 1 to 59"):
        honest.check(most_samples=59)
    lies = {
        "calibration_samples": (np.array([0.5]), "whole number"),
        "calibration_global": (np.ones(SHAPES["calibration_global"]), "log likelihoods"),
        "calibration_local": (np.full(SHAPES["calibration_local"], -1e9), "log likelihoods"),
        "calibration_moments": (np.full(SHAPES["calibration_moments"], 1e30), "out of range"),
        "calibration_weights": (np.array([-1.0, 0.0]), "out of range"),
    }
    for name, (lie, said) in lies.items():
        with pytest.raises(InputError, match=said):
            Calibration({**honest.arrays, name: lie}).check(most_samples=60)
        with pytest.raises(InputError, match=r"NaN|finite"):
            Calibration({**honest.arrays, name: lie * np.nan}).check(most_samples=60)
    with pytest.raises(InputError, match="shape"):
        Calibration({**honest.arrays, "calibration_samples": np.ones(2)}).check(most_samples=60)
    with pytest.raises(InputError, match="missing"):
        Calibration.from_arrays({})


def test_a_client_whose_every_sample_is_at_the_limit_is_honest() -> None:
    drawn = draw_clients(0.2, clients=2)
    summaries = [Summary.of(*train, classes=CLASSES) for train, _ in drawn]
    wrong = [(z, (y + 1) % CLASSES) for _, (z, y) in drawn]  # every answer is far off
    head = 1e6 * np.eye(CLASSES, DIMENSIONS)
    Calibration.of(head, head, summaries[0], Summary.total(summaries), *wrong[0]).check(most_samples=60)
