"""Facts of the 15 corruptions: CIFAR-10-C's strengths, severity that counts, any size, chance from the generator."""

from __future__ import annotations

import colorsys
import io
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from btfl.errors import InputError, UnknownNameError
from btfl.pixels.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from btfl.pixels.types import Images
from btfl.randomness import generator

REAL = "cinic10-imagenet-tiles.npz"
every_corruption = pytest.mark.parametrize("name", CORRUPTIONS)

# CIFAR-10-C's constants do not make these farther from the original with every step; their facts are below.
UNEVEN = ("glass_blur", "motion_blur", "elastic_transform")


def rng(number: int = 0) -> np.random.Generator:
    return generator(number, "test")


@cache
def natural(n: int = 64, side: int = 32, channels: int = 3) -> Images:
    """Images with the spectrum of natural ones (amplitude falling as 1 / frequency), mostly grey, partly coloured."""
    draw = rng()
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    noise = np.fft.rfft2(draw.standard_normal((n, 1 + channels, side, side))) / frequency
    planes = np.moveaxis(np.fft.irfft2(noise, (side, side)), 1, -1)
    planes /= planes.std(axis=(1, 2), keepdims=True)
    level = draw.uniform(0.3, 0.7, (n, 1, 1, channels))
    pixels = level + 0.18 * planes[..., :1] + 0.07 * planes[..., 1:]
    images: Images = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    images.flags.writeable = False
    return images


@cache
def real() -> Images:
    root = Path(__file__).resolve().parents[2]
    places = [Path(os.environ["BTFL_TEST_DATA"])] if "BTFL_TEST_DATA" in os.environ else []
    for place in (*places, root.parent / "shared" / "data"):
        path = place / REAL if place.is_dir() else place
        if path.name == REAL and path.is_file():
            with np.load(path) as file:
                return np.asarray(file["x"][:250], np.uint8)
    pytest.skip(f"{REAL} is neither in BTFL_TEST_DATA nor in ../shared/data")


def floats(images: Images) -> NDArray[np.float64]:
    return images / 255.0


def distortion(images: Images, name: str, severity: int) -> float:
    """The mean squared error to the original. Every severity gets the same draws, which steadies the comparison."""
    return float(np.mean((floats(corrupt(images, name, severity, rng())) - floats(images)) ** 2))


def test_the_names_are_those_of_cifar_10_c() -> None:
    noise = ("gaussian_noise", "shot_noise", "impulse_noise")
    blur = ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur")
    weather = ("snow", "frost", "fog", "brightness")
    digital = ("contrast", "elastic_transform", "pixelate", "jpeg_compression")
    assert noise + blur + weather + digital == CORRUPTIONS


# --- what holds for every corruption ---------------------------------------------------------------------------


@every_corruption
def test_the_generator_decides_everything_and_the_input_stays(name: str) -> None:
    images = natural(16)
    before = images.copy()
    once, again = (corrupt(images, name, 5, rng(1)) for _ in range(2))
    assert once.dtype == np.uint8
    assert once.shape == images.shape
    assert np.array_equal(once, again)
    assert np.array_equal(images, before)
    assert not np.shares_memory(once, images)
    chanceless = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
    assert np.array_equal(once, corrupt(images, name, 5, rng(2))) == (name in chanceless)


@every_corruption
def test_no_other_source_of_chance_is_touched(name: str) -> None:
    legacy = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    corrupt(natural(4), name, 3, rng())
    assert np.array_equal(legacy, np.random.get_state(legacy=False)["state"]["key"])  # noqa: NPY002


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in UNEVEN])
@pytest.mark.parametrize("images", [natural, real], ids=["synthetic", "real"])
def test_every_step_of_severity_is_farther_from_the_original(name: str, images: Any) -> None:
    steps = [distortion(images(), name, severity) for severity in SEVERITIES]
    assert steps[0] > 0
    assert np.all(np.diff(steps) > 0), steps


@every_corruption
@pytest.mark.parametrize("side", [8, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_other_sizes_and_grey_are_corrupted_but_not_destroyed(name: str, side: int, channels: int) -> None:
    images = natural(32, side, channels)
    for severity in SEVERITIES:
        corrupted = corrupt(images, name, severity, rng())
        assert corrupted.shape == images.shape
        assert not np.array_equal(corrupted, images)
        # What is left of the picture: how well its pixels still follow those of the original.
        pairs = zip(floats(images).reshape(32, -1), floats(corrupted).reshape(32, -1), strict=True)
        assert np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]) > 0.35


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(CORRUPTIONS),
    severity=st.sampled_from(SEVERITIES),
    height=st.integers(8, 48),
    width=st.integers(8, 48),
    channels=st.sampled_from([1, 3]),
    flat=st.sampled_from([0, 128, 255, None]),
)
def test_any_shape_and_flat_images_work(
    name: str, severity: int, height: int, width: int, channels: int, flat: int | None
) -> None:
    shape = (2, height, width, channels)
    images = rng().integers(0, 256, shape) if flat is None else np.full(shape, flat)
    assert corrupt(images.astype(np.uint8), name, severity, rng()).shape == shape


@every_corruption
def test_large_and_lying_images_and_empty_batches_work(name: str) -> None:
    assert corrupt(natural(1, 224), name, 5, rng()).shape == (1, 224, 224, 3)
    assert corrupt(natural(2, 64)[:, :20], name, 5, rng()).shape == (2, 20, 64, 3)
    assert corrupt(np.zeros((0, 32, 32, 3), np.uint8), name, 5, rng()).shape == (0, 32, 32, 3)


@pytest.mark.parametrize("name", ["defocus_blur", "motion_blur", "zoom_blur", "snow", "frost", "elastic_transform"])
def test_a_larger_copy_is_about_as_corrupted(name: str) -> None:
    small = natural(24)
    large = np.rint(np.clip(ndimage.zoom(floats(small), (1, 2, 2, 1), order=1), 0, 1) * 255).astype(np.uint8)
    assert 0.4 < distortion(large, name, 5) / distortion(small, name, 5) < 1.6


@every_corruption
def test_large_batches_are_corrupted_to_the_last_image(name: str) -> None:
    images = np.concatenate([natural(), natural(), natural(), natural(), natural(16)])
    changed = (corrupt(images, name, 5, rng()) != images).any(axis=(1, 2, 3))
    assert changed.all()


# --- noise -----------------------------------------------------------------------------------------------------


def test_gaussian_noise_has_the_standard_deviation_of_cifar_10_c() -> None:
    grey = np.full((20, 32, 32, 3), 128, np.uint8)
    for severity, std in zip(SEVERITIES, (0.04, 0.06, 0.08, 0.09, 0.10), strict=True):
        noise = floats(corrupt(grey, "gaussian_noise", severity, rng())) - floats(grey)
        assert noise.std() == pytest.approx(std, rel=0.02)
        assert abs(noise.mean()) < 0.002


def test_shot_noise_varies_with_the_light() -> None:
    for level in (26, 102, 204):
        noisy = floats(corrupt(np.full((20, 32, 32, 3), level, np.uint8), "shot_noise", 5, rng()))
        assert noisy.var() == pytest.approx(level / 255 / 50, rel=0.15)
    assert not corrupt(np.zeros((2, 32, 32, 3), np.uint8), "shot_noise", 5, rng()).any()


def test_impulse_noise_turns_its_share_of_values_black_or_white() -> None:
    noisy = corrupt(np.full((20, 32, 32, 3), 128, np.uint8), "impulse_noise", 5, rng())
    assert set(np.unique(noisy)) == {0, 128, 255}
    assert (noisy != 128).mean() == pytest.approx(0.07, rel=0.05)
    assert (noisy == 0).sum() == pytest.approx((noisy == 255).sum(), rel=0.1)


# --- blur ------------------------------------------------------------------------------------------------------


def test_defocus_at_severity_5_averages_three_by_three() -> None:
    images = natural(4)
    mean = ndimage.uniform_filter(floats(images), (1, 3, 3, 1), mode="mirror")
    assert np.abs(floats(corrupt(images, "defocus_blur", 5, rng())) - mean).max() < 0.003


def test_glass_shows_near_pixels_and_few_of_them_in_place() -> None:
    places = np.arange(32 * 32).reshape(32, 32)
    images = np.stack([places // 32 * 8, places % 32 * 8, places * 0], axis=-1).astype(np.uint8)[None]
    once = corrupt(images, "glass_blur", 1, rng())
    jump = (images.astype(int) - once)[0, 2:, 2:, :2] / 8  # how far up and left the shown pixel lay
    assert set(np.unique(jump)) == {0, 1}
    assert jump.mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("images", [natural, real], ids=["synthetic", "real"])
def test_glass_passed_twice_is_farther_than_once(images: Any) -> None:
    steps = [distortion(images(), "glass_blur", severity) for severity in SEVERITIES]
    assert max(steps[:3]) < min(steps[3:])


def test_motion_smears_a_dot_into_a_half_gaussian_within_45_degrees() -> None:
    dots = np.zeros((50, 33, 33, 1), np.uint8)
    dots[:, 16, 16] = 255
    smeared = floats(corrupt(dots, "motion_blur", 5, rng()))[..., 0]
    assert smeared.sum(axis=(1, 2)) == pytest.approx(1, abs=0.03)
    half = np.exp(-(np.arange(19) ** 2) / (2 * (2.5 * 33 / 32) ** 2))
    assert smeared[:, 16, 16] == pytest.approx(half[0] / half.sum(), abs=0.003)
    _, y, x = np.nonzero(smeared)
    assert np.all(x <= 16)  # the light comes from one side
    assert np.all(np.abs(y - 16) <= 16 - x)


@pytest.mark.parametrize("images", [natural, real], ids=["synthetic", "real"])
def test_motion_grows_but_for_severities_3_and_4_which_are_the_same(images: Any) -> None:
    steps = [distortion(images(), "motion_blur", severity) for severity in SEVERITIES]
    assert steps[0] < steps[1] < steps[2] < steps[4]
    assert steps[2] == pytest.approx(steps[3], rel=1e-3)


def test_zoom_is_the_average_of_scipys_zooms() -> None:
    images = natural(1)
    views = [floats(images)[0]]
    for factor in np.arange(1, 1.26, 0.01):
        kept = int(np.ceil(32 / factor))
        top = (32 - kept) // 2
        view = ndimage.zoom(views[0][top : top + kept, top : top + kept], (factor, factor, 1), order=1)
        trim = (len(view) - 32) // 2
        views.append(view[trim : trim + 32, trim : trim + 32])
    assert np.abs(floats(corrupt(images, "zoom_blur", 5, rng()))[0] - np.mean(views, axis=0)).max() < 0.003


# --- weather ---------------------------------------------------------------------------------------------------


def test_snow_only_lightens() -> None:
    images = natural()
    for severity in SEVERITIES:
        assert np.all(corrupt(images, "snow", severity, rng()) >= images)


def test_snow_on_a_black_image_falls_along_streaks() -> None:
    black = np.zeros((30, 32, 32, 1), np.uint8)
    snow = floats(corrupt(black, "snow", 4, rng()))[..., 0]
    along = np.abs(np.diff(snow, axis=1)).mean()
    across = np.abs(np.diff(snow, axis=2)).mean()
    assert along < 0.8 * across  # nearer to vertical than to horizontal
    assert np.allclose(snow, snow[:, ::-1, ::-1], atol=0.005)


def test_frost_adds_its_weight_of_light_and_has_texture() -> None:
    frost = floats(corrupt(np.zeros((200, 32, 32, 3), np.uint8), "frost", 5, rng())) / 0.45
    assert 0.55 < frost.mean() < 0.7
    assert 0.05 < frost.std(axis=(1, 2)).mean() < 0.15
    assert frost[..., 2].mean() > frost[..., 0].mean() + 0.05  # ice is bluish
    flat = corrupt(np.full((200, 32, 32, 3), 64, np.uint8), "frost", 5, rng())
    assert np.abs(floats(flat) - np.minimum(0.75 * 64 / 255 + 0.45 * frost, 1)).max() < 0.006


def test_fog_keeps_the_lightest_pixel_and_fades_detail() -> None:
    images = natural()
    for severity, thickness in zip(SEVERITIES, (0.2, 0.5, 0.75, 1.0, 1.5), strict=True):
        fogged = corrupt(images, "fog", severity, rng())
        lightest = images.max(axis=(1, 2, 3))
        assert np.all(fogged.max(axis=(1, 2, 3)) <= lightest)
        # Fog is grey: between the channels nothing is left but the faded image.
        fade = floats(lightest) / (floats(lightest) + thickness)
        colour = floats(fogged)[..., 0] - floats(fogged)[..., 1]
        expected = fade[:, None, None] * (floats(images)[..., 0] - floats(images)[..., 1])
        assert np.abs(colour - expected).max() < 0.005


def test_brightness_raises_the_value_and_leaves_hue_and_saturation() -> None:
    images = natural(8)
    brighter = corrupt(images, "brightness", 5, rng())
    assert brighter.mean() > images.mean()
    for before, after in zip(floats(images)[:, 5, 5], floats(brighter)[:, 5, 5], strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*before)
        assert after == pytest.approx(colorsys.hsv_to_rgb(hue, saturation, min(1, value + 0.3)), abs=0.003)
    black = corrupt(np.zeros((1, 8, 8, 3), np.uint8), "brightness", 5, rng())
    assert np.all(np.abs(floats(black) - 0.3) < 0.003)


# --- digital ---------------------------------------------------------------------------------------------------


def test_contrast_shrinks_the_spread_by_its_constant_and_keeps_the_mean() -> None:
    images = natural()
    for severity, kept in zip(SEVERITIES, (0.75, 0.5, 0.4, 0.3, 0.15), strict=True):
        duller = corrupt(images, "contrast", severity, rng())
        ratio = duller.std(axis=(1, 2)) / images.std(axis=(1, 2))
        assert ratio == pytest.approx(kept, abs=0.02)
        assert duller.mean(axis=(1, 2)) == pytest.approx(images.mean(axis=(1, 2)), abs=0.6)


def test_elastic_warps_more_locally_with_severity() -> None:
    # Two ramps show where each pixel came from. What no affine map explains is the elastic part.
    y, x = np.mgrid[:32, :32]
    ramps = np.repeat(np.stack([y, x, 0 * y], axis=-1)[None] * 8, 60, axis=0).astype(np.uint8)
    inner = slice(8, 24)
    design = np.stack([y[inner, inner].ravel(), x[inner, inner].ravel(), np.ones(256)], axis=1)
    rough = []
    for severity in SEVERITIES:
        came_from = corrupt(ramps, "elastic_transform", severity, rng())[:, inner, inner, :2] / 8
        flat = np.moveaxis(came_from, 0, 2).reshape(256, -1)
        residue = flat - design @ np.linalg.lstsq(design, flat, rcond=None)[0]
        rough.append(float(residue.std()))
    assert np.all(np.diff(rough) > 0), rough
    assert rough[0] < 0.05  # severity 1 is affine, but for rounding
    assert 0.4 < rough[4] < 0.8  # pixels


def test_elastic_keeps_the_colours() -> None:
    images = natural()
    moved = corrupt(images, "elastic_transform", 5, rng())
    assert moved.mean() == pytest.approx(images.mean(), abs=2)
    assert moved.max() <= images.max()


def test_pixelate_leaves_blocks_as_pillows_box_filter_does() -> None:
    images = natural(8)
    for severity, share in zip(SEVERITIES, (0.95, 0.9, 0.85, 0.75, 0.65), strict=True):
        coarse = int(32 * share)
        blocks = corrupt(images, "pixelate", severity, rng())
        for image, result in zip(images, blocks, strict=True):
            assert len(np.unique(result.reshape(32, -1), axis=0)) <= coarse
            assert len(np.unique(result.swapaxes(0, 1).reshape(32, -1), axis=0)) <= coarse
            small = Image.fromarray(image).resize((coarse, coarse), Image.Resampling.BOX)
            pillow = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
            assert np.abs(result.astype(int) - pillow).max() <= 1  # Pillow rounds between its two passes


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_what_pillow_gives(channels: int) -> None:
    images = natural(4, 32, channels)
    for severity, quality in zip(SEVERITIES, (80, 65, 58, 50, 40), strict=True):
        for image, result in zip(images, corrupt(images, "jpeg_compression", severity, rng()), strict=True):
            store = io.BytesIO()
            Image.fromarray(image.squeeze()).save(store, "JPEG", quality=quality)
            assert np.array_equal(np.asarray(Image.open(store)), result.squeeze())


# --- what is refused -------------------------------------------------------------------------------------------


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"'gausian_noise'.*Did you mean gaussian_noise"):
        corrupt(natural(1), "gausian_noise", 5, rng())


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, "3", None])
def test_a_severity_outside_1_to_5_is_refused(severity: Any) -> None:
    with pytest.raises(InputError, match="severity must be a whole number from 1 to 5"):
        corrupt(natural(1), "fog", severity, rng())


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, 32, 32, 3), np.float32),
        np.zeros((32, 32, 3), np.uint8),
        np.zeros((2, 3, 32, 32), np.uint8),
        np.zeros((2, 32, 32, 4), np.uint8),
    ],
    ids=["floats", "one image", "channels first", "four channels"],
)
def test_other_arrays_are_refused_with_the_right_form(images: Any) -> None:
    with pytest.raises(InputError, match=r"uint8 of shape \(n, height, width, 1 or 3\)"):
        corrupt(images, "fog", 1, rng())


def test_images_too_small_to_show_anything_are_refused() -> None:
    with pytest.raises(InputError, match="at least 8x8 pixels, not 32x7"):
        corrupt(np.zeros((2, 32, 7, 3), np.uint8), "fog", 1, rng())
