"""AugMix (Hendrycks et al., ICLR 2020): variants of an image that a person would still call the same.

Each variant is the image, mixed with three chains of one to three operations. None of these is a corruption that the
benchmark tests with, which is what AugMix was made for. At strength 1, as in MEMO's release for small images, all
operations are at AugMix's lowest severity. All chains go side by side, one operation at a time over all images that
take it, because a Python call for each image would cost more than the network does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name the field uses)

from btfl.pixels.images import crop_and_flip
from btfl.pixels.types import Images

CHAINS, LONGEST = 3, 3
_AT_ONCE = 500  # images whose chains are in memory together
_GREY = 128.0  # what comes in at the borders

Operation = Callable[[Tensor, Tensor], Tensor]
"""(images, levels) -> images: (n, channels, height, width) of whole numbers 0..255; (n,) levels, ±(0.1 .. strength)."""


def augmix(image: Images, copies: int, rng: np.random.Generator) -> Images:
    """Return variants (copies, height, width, channels) of one image (height, width, channels), moved and mirrored."""
    return distorted(crop_and_flip(np.repeat(image[None], copies, axis=0), rng), rng)


def distorted(images: Images, rng: np.random.Generator, strength: float = 1.0) -> Images:
    """Return one variant of each image (n, height, width, channels), of operations at levels up to ``strength``."""
    parts = [_variants(images[i : i + _AT_ONCE], rng, strength) for i in range(0, len(images), _AT_ONCE)]
    return np.concatenate(parts) if parts else images.copy()


def _variants(plain: Images, rng: np.random.Generator, strength: float) -> Images:
    copies = len(plain)
    shares = rng.dirichlet(np.ones(CHAINS), size=copies).reshape(-1, 1, 1, 1)
    keep = rng.beta(1.0, 1.0, size=(copies, 1, 1, 1))
    steps = (copies * CHAINS, LONGEST)
    length = rng.integers(1, LONGEST + 1, size=(steps[0], 1))
    chosen = np.where(np.arange(LONGEST) < length, rng.integers(len(OPERATIONS), size=steps), -1)
    levels = rng.uniform(0.1, strength, size=steps) * rng.choice([-1.0, 1.0], size=steps)
    # All at once, so that what is drawn is plain to see; from here on nothing is random.
    start = torch.from_numpy(plain).permute(0, 3, 1, 2).float().contiguous()
    chains = _run(start.repeat_interleave(CHAINS, 0), torch.from_numpy(chosen), torch.from_numpy(levels).float())
    mixed = (chains * torch.from_numpy(shares).float()).reshape(copies, CHAINS, *start.shape[1:]).sum(1)
    kept = torch.from_numpy(keep).float()
    result = (kept * start + (1.0 - kept) * mixed).round_().clamp_(0.0, 255.0).to(torch.uint8)
    return np.ascontiguousarray(result.permute(0, 2, 3, 1).numpy())


def _run(images: Tensor, chosen: Tensor, levels: Tensor) -> Tensor:
    for step in range(LONGEST):
        for number, operation in enumerate(OPERATIONS):
            rows = (chosen[:, step] == number).nonzero()[:, 0]
            if len(rows):
                images[rows] = operation(images[rows], levels[rows, step])
    return images


def _autocontrast(images: Tensor, levels: Tensor) -> Tensor:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    stretched = ((images - low) * (255.0 / (high - low).clamp(min=1.0))).floor_()
    return torch.where(high > low, stretched, images)


def _equalise(images: Tensor, levels: Tensor) -> Tensor:
    """Spread the values of each channel so that all are about as frequent, by Pillow's rule."""
    values = images.flatten(2).flatten(0, 1).long()
    counts = torch.zeros(len(values), 256, dtype=torch.long).scatter_add_(1, values, torch.ones_like(values))
    brightest = counts.gather(1, values.amax(1, keepdim=True))
    step = (values.shape[1] - brightest) // 255
    below = counts.cumsum(1) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256))  # too few pixels to spread: left as it is
    return table.gather(1, values).to(images.dtype).reshape(images.shape)


def _posterise(images: Tensor, levels: Tensor) -> Tensor:
    return (images / 16.0).floor_() * 16.0


def _solarise(images: Tensor, levels: Tensor) -> Tensor:
    threshold = 256.0 - (levels.abs() * 25.6).floor_().reshape(-1, 1, 1, 1)
    return torch.where(images < threshold, images, 255.0 - images)


def _rotate(images: Tensor, levels: Tensor) -> Tensor:
    angle = torch.deg2rad(3.0 * levels)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return _affine(images, {(0, 0): cosine, (0, 1): -sine, (1, 0): sine, (1, 1): cosine})


def _affine(images: Tensor, entries: dict[tuple[int, int], Tensor]) -> Tensor:
    """Move pixels by a 2x3 matrix, the identity but for these entries; the image spans -1..1."""
    matrices = torch.eye(2, 3).repeat(len(images), 1, 1)
    for (row, column), values in entries.items():
        matrices[:, row, column] = values
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images - _GREY, grid, align_corners=False).add_(_GREY).round_()


OPERATIONS: tuple[Operation, ...] = (
    _autocontrast,
    _equalise,
    _posterise,
    _solarise,
    _rotate,
    lambda images, levels: _affine(images, {(0, 1): 0.03 * levels}),  # shear along x, along y
    lambda images, levels: _affine(images, {(1, 0): 0.03 * levels}),
    lambda images, levels: _affine(images, {(0, 2): levels / 15.0}),  # shift by up to a thirtieth along x, along y
    lambda images, levels: _affine(images, {(1, 2): levels / 15.0}),
)
