"""AugMix: its operations are Pillow's, done side by side; its variants stay close to the image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from btfl.pixels.augmix import OPERATIONS, augmix, distorted
from btfl.pixels.types import Images

LEVEL = 0.8
GREY = (128, 128, 128)
AFFINE, BILINEAR = Image.Transform.AFFINE, Image.Resampling.BILINEAR


def pictures(channels: int = 3) -> Images:
    """Smooth images with some noise, of different brightness, one of them of a single value."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32]
    smooth = 60 + 2.5 * x + 1.5 * y + 20 * np.sin(x / 5)
    images = smooth[None, :, :, None] * rng.uniform(0.5, 1.0, (6, 1, 1, channels)) + rng.normal(
        0, 4, (6, 32, 32, channels)
    )
    images[-1] = 77
    return np.asarray(images.clip(0, 255), np.uint8)


@pytest.mark.parametrize(
    ("number", "pillow", "tolerance"),
    [
        (0, ImageOps.autocontrast, 1),
        (1, ImageOps.equalize, 0),
        (2, lambda picture: ImageOps.posterize(picture, 4), 0),
        (3, lambda picture: ImageOps.solarize(picture, 256 - int(LEVEL * 25.6)), 0),
        (4, lambda picture: picture.rotate(3 * LEVEL, BILINEAR, fillcolor=GREY), 1),
        (5, lambda picture: _warp(picture, (1, 0.03 * LEVEL, -0.03 * LEVEL * 16, 0, 1, 0)), 1),
        (6, lambda picture: _warp(picture, (1, 0, 0, 0.03 * LEVEL, 1, -0.03 * LEVEL * 16)), 1),
        (7, lambda picture: _warp(picture, (1, 0, LEVEL * 32 / 30, 0, 1, 0)), 1),
        (8, lambda picture: _warp(picture, (1, 0, 0, 0, 1, LEVEL * 32 / 30)), 1),
    ],
)
def test_each_operation_is_pillows(number: int, pillow: Callable[[Image.Image], Image.Image], tolerance: int) -> None:
    images = pictures()
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    ours = OPERATIONS[number](tensor, torch.full((6,), LEVEL)).permute(0, 2, 3, 1).numpy()
    theirs = np.stack([np.asarray(pillow(Image.fromarray(image))) for image in images])
    inside = slice(3, -3)  # at the border Pillow fills, and we fade into grey
    assert np.abs(ours - theirs)[:, inside, inside].max() <= tolerance


def _warp(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return picture.transform(picture.size, AFFINE, matrix, BILINEAR, fillcolor=GREY)


@pytest.mark.parametrize("channels", [1, 3])
def test_variants_differ_from_each_other_and_stay_close_to_the_image(channels: int) -> None:
    image = pictures(channels)[0]
    variants = augmix(image, 32, np.random.default_rng(0))
    assert variants.shape == (32, *image.shape)
    assert variants.dtype == np.uint8
    assert len({variant.tobytes() for variant in variants}) == 32
    middle = slice(8, -8)
    either_way = np.stack([variants, variants[:, :, ::-1]])[:, :, middle, middle].astype(float)
    apart = np.abs(either_way - image[middle, middle]).mean((2, 3, 4)).min(0)
    assert apart.mean() < 40


def test_stronger_distortions_are_further_from_the_images() -> None:
    images = np.concatenate([pictures()] * 100)  # more than are done at once
    apart = [
        np.abs(distorted(images, np.random.default_rng(0), strength).astype(float) - images).mean()
        for strength in (1.0, 5.0)
    ]
    assert 0 < apart[0] < apart[1]
    assert distorted(images[:0], np.random.default_rng(0)).shape == images[:0].shape


def test_the_same_draws_give_the_same_variants() -> None:
    image = pictures()[0]
    first, again, other = (augmix(image, 8, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
