"""How samples look before any network: failed cameras and sensors are found one by one, at the promised rate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl import ClientBundle, Coherent, Monitor
from btfl.errors import InputError
from btfl.monitor import Looks, levels_for
from btfl.monitor.directions import distance, usual_directions
from btfl.monitor.statistics import smallest_step, statistics_of
from fleet import make_bundles, own
from making import make_bundle

SIDE = 16


def pictures(count: int, seed: int, *, grey: bool = False) -> np.ndarray:
    """Draw smooth pictures: a colour, a slope of brightness and a little texture, no two alike."""
    rng = np.random.default_rng(seed)
    rows, columns = np.meshgrid(np.linspace(-1, 1, SIDE), np.linspace(-1, 1, SIDE), indexing="ij")
    slopes = rng.normal(size=(count, 2, 1, 1)) * 40
    surface = slopes[:, 0] * rows + slopes[:, 1] * columns
    texture = rng.normal(size=(count, SIDE, SIDE, 1)) * rng.uniform(4, 10, size=(count, 1, 1, 1))
    colours = rng.uniform(70, 180, size=(count, 1, 1, 1 if grey else 3))
    return np.clip(colours + surface[..., None] + texture, 0, 255).astype(np.uint8)


def waves(count: int, seed: int, time: int = 64) -> np.ndarray:
    """Draw signals of two channels: a wave of any phase, and noise."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, size=(count, 1))
    speed = rng.uniform(0.2, 0.4, size=(count, 1))
    wave = np.sin(speed * np.arange(time) + phase)
    return np.stack([wave, -wave], axis=2) + rng.normal(size=(count, time, 2)) * 0.1


FAILED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "black": np.zeros_like,
    "white": lambda seen: np.full_like(seen, 255),
    "constant": lambda seen: np.broadcast_to(seen[:, :1, :1], seen.shape),
    "noise": lambda seen: np.random.default_rng(0).integers(0, 256, size=seen.shape).astype(np.uint8),
    "frozen lines": lambda seen: np.broadcast_to(seen[:, :1], seen.shape),
}


@pytest.mark.parametrize("kind", FAILED)
@pytest.mark.parametrize("grey", [False, True])
def test_every_single_frame_of_a_failed_camera_is_found(kind: str, grey: bool) -> None:
    looks = Looks.of(pictures(400, 0, grey=grey), pictures(300, 1, grey=grey))
    frames = FAILED[kind](pictures(50, 2, grey=grey))
    assert (looks.strangeness(frames) > looks.level(0.01)).all()


@pytest.mark.parametrize("kind", ["dead", "stuck", "one dead channel", "shaken"])
def test_every_single_window_of_a_failed_sensor_is_found(kind: str) -> None:
    looks = Looks.of(waves(300, 0))
    new = waves(40, 2)
    if kind == "dead":
        new = np.zeros_like(new)
    elif kind == "stuck":
        new = np.broadcast_to(new[:, :1], new.shape)
    elif kind == "one dead channel":
        new[..., 1] = 0.0
    else:
        new = new + np.random.default_rng(5).normal(size=new.shape)
    assert (looks.strangeness(new) > looks.level(0.01)).all()


@pytest.mark.parametrize("held_out", [False, True])
def test_own_samples_exceed_the_level_as_rarely_as_promised(held_out: bool) -> None:
    looks = Looks.of(pictures(600, 0), pictures(600, 1) if held_out else None)
    new = looks.strangeness(pictures(4000, 2))
    assert 0.02 < (new > looks.level(0.05)).mean() < 0.09
    assert (new > looks.level(0.01)).mean() < 0.025
    assert 0.3 < np.median(new) < 0.7  # in units of what is rare


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 1e3), st.floats(-1e3, 1e3))
def test_units_of_a_signal_make_no_difference(seed: int, scale: float, offset: float) -> None:
    """A level in volts finds what a level in millivolts finds."""
    seen, new = waves(60, seed), waves(5, seed + 1)
    plain, other = Looks.of(seen), Looks.of(seen * scale + offset)
    np.testing.assert_allclose(other.strangeness(new * scale + offset), plain.strangeness(new), rtol=0.05)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_a_sample_is_found_that_differs_where_own_ones_hardly_do(seed: int, place: int) -> None:
    """Ten numbers, and ten that differ from them by a hundredth: an image without fine detail differs by a tenth."""
    rng = np.random.default_rng(seed)

    def draw(count: int, off: float = 0.0) -> np.ndarray:
        numbers = rng.normal(size=(count, 10))
        near = numbers + 0.01 * rng.normal(size=numbers.shape)
        near[:, place] += off
        return np.concatenate([numbers, near], axis=1)

    looks = usual_directions(draw(600))
    level = np.quantile(distance(draw(2000), *looks), 0.99)
    assert (distance(draw(200, off=0.1), *looks) > level).mean() > 0.95


def test_a_colour_image_among_grey_ones_of_three_channels_is_found() -> None:
    """Numbers that never differ from each other leave directions along which nothing ever moved."""
    looks = Looks.of(pictures(300, 0, grey=True).repeat(3, axis=3))
    grey = looks.strangeness(pictures(200, 1, grey=True).repeat(3, axis=3))
    assert np.isfinite(grey).all()
    assert (grey > looks.level(0.01)).mean() < 0.05
    assert (looks.strangeness(pictures(50, 2)) > looks.level(0.01)).all()


def test_a_sample_is_told_the_same_alone_and_among_others() -> None:
    seen = pictures(300, 0)
    looks = Looks.of(seen)
    together = looks.strangeness(seen)
    alone = np.concatenate([looks.strangeness(one[None]) for one in seen[:20]])
    np.testing.assert_allclose(alone, together[:20], rtol=1e-12)


def test_statistics_of_a_constant_are_finite() -> None:
    frames = np.zeros((2, 8, 8, 3), np.uint8)
    assert np.isfinite(statistics_of(frames, smallest_step(frames))).all()
    silent = np.zeros((2, 8, 3))
    assert np.isfinite(statistics_of(silent, smallest_step(silent))).all()


def test_few_samples_and_samples_that_are_all_alike_do_not_break_it() -> None:
    few = Looks.of(pictures(10, 0))
    assert np.isfinite(few.strangeness(pictures(5, 1))).all()
    alike = Looks.of(np.zeros((20, 8, 8, 1), np.uint8))
    assert alike.strangeness(np.full((1, 8, 8, 1), 9, np.uint8))[0] > alike.level(0.01)


def test_a_bundle_takes_it_along(tmp_path: Path) -> None:
    looks = Looks.of(pictures(100, 0))
    bundle = make_bundle(8, 4)
    assert Looks.carried(bundle) is None
    looks.carried_by(bundle).save(tmp_path / "bundle")
    again = Looks.carried(ClientBundle.load(tmp_path / "bundle"))
    assert again is not None
    assert again.shape == (SIDE, SIDE, 3)
    new = pictures(5, 1)
    np.testing.assert_array_equal(again.strangeness(new), looks.strangeness(new))
    assert again.level(0.01) == pytest.approx(looks.level(0.01), abs=1e-4)


def test_a_monitor_alarms_at_the_first_black_frame_and_ends_when_pictures_are_back() -> None:
    looks = Looks.of(pictures(400, 0), pictures(400, 1))
    seen = np.concatenate([pictures(100, 2), np.zeros((30, SIDE, SIDE, 3), np.uint8), pictures(100, 3)])
    alarms = Monitor(looks.levels()).watch({"looks": looks.strangeness(seen)})
    began, ended = alarms
    assert (began.kind, began.begins, began.sample) == ("strange", True, 100)
    assert (ended.kind, ended.begins) == ("strange", False)
    assert 149 <= ended.sample <= 160  # after twenty calm ones in a row


def test_it_is_watched_beside_the_signals_of_a_method() -> None:
    bundle, looks = make_bundles()[0], Looks.of(pictures(100, 0))
    method = Coherent(bundle)
    levels = looks.among(levels_for(method, bundle, drawn=2000))
    assert set(levels.levels) == {"all_external", "looks"}
    method.predict(own(0, 3))
    Monitor(levels).watch({**method.trace, "looks": looks.strangeness(pictures(3, 1))})
    with pytest.raises(InputError, match="no 'looks'"):
        Monitor(levels).watch(method.trace)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((50, 12)), "vectors have no steps"),
        (np.zeros((50, 2, 2, 3)), "at least 5 values a side"),
        (np.full((50, 8, 8, 1), np.nan), "NaN"),
        (np.zeros((3, 8, 8, 1)), "10 own samples or more"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(samples: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Looks.of(samples)


def test_samples_of_another_shape_are_refused() -> None:
    looks = Looks.of(pictures(50, 0))
    with pytest.raises(InputError, match=r"pass sample\[None\]"):
        looks.strangeness(pictures(1, 1)[0])
    with pytest.raises(InputError, match="had"):
        looks.strangeness(np.zeros((2, 8, 8, 3), np.uint8))


@pytest.mark.parametrize(
    "damage",
    [
        {"shape": [16, 16]},
        {"shape": "abc"},
        {"shape": [10**6, 10**6, 3]},  # would ask for terabytes
        {"step": 0.0},
        {"step": "one"},
        {"centre": [1.0]},
        {"own": []},
        {"own": [float("nan")]},
        {"directions": [[1.0]]},
    ],
)
def test_a_damaged_one_is_refused(damage: dict[str, object]) -> None:
    bundle = Looks.of(pictures(50, 0)).carried_by(make_bundle(8, 4))
    told = json.loads(json.dumps(bundle.metadata["looks"])) | damage
    object.__setattr__(bundle, "metadata", {**bundle.metadata, "looks": told})
    with pytest.raises(InputError):
        Looks.carried(bundle)
