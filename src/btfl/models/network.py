"""The shape every model has: an extractor and a linear head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from btfl.errors import InputError
from btfl.randomness import generator


class Network(nn.Module):
    """An extractor under a linear head.

    Parameters
    ----------
    extractor : a module from images (n, channels, height, width) to features (n, feature_size), of any sign. BTFL's
        likelihood reads a feature as "on" where it is above 0.55 and as "off" elsewhere, below zero too, as after a
        ReLU; Coherent reads its value
    feature_size : width of the features
    classes : number of classes, at least 2
    bias : whether the head has one; the published cnn and resnet20 have none
    nonnegative : whether the extractor ends in a ReLU. Its features are then checked for it, and so are the sums that
        clients upload

    The extractor's output is checked once, by ``verify`` or else at the first use, not on every batch.

    Example
    -------
    A model of your own is a factory of these lines; name it ``--model my_module:factory``::

        def factory(image_shape: tuple[int, int, int], classes: int) -> Network:
            height, width, channels = image_shape
            extractor = nn.Sequential(nn.Flatten(), nn.Linear(height * width * channels, 32), nn.ReLU())
            return Network(extractor, feature_size=32, classes=classes)
    """

    extractor: nn.Module
    head: nn.Linear

    def __init__(
        self, extractor: nn.Module, feature_size: int, classes: int, bias: bool = False, nonnegative: bool = False
    ) -> None:
        if feature_size < 1:
            raise InputError(f"feature_size must be at least 1, not {feature_size}")
        if classes < 2:
            raise InputError(f"a model needs at least 2 classes, not {classes}")
        super().__init__()
        self.feature_size, self.nonnegative = feature_size, nonnegative
        self.extractor = extractor
        self.head = nn.Linear(feature_size, classes, bias=bias)
        self._checked = False

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the head's logits, (n, classes), for images (n, channels, height, width)."""
        logits: torch.Tensor = self.head(self.features(images))
        return logits

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features of each image, (n, feature_size)."""
        features: torch.Tensor = self.extractor(images)
        # The check reads values, which a graph that is being exported does not have yet.
        if not self._checked and len(images) > 0 and not torch.compiler.is_compiling():
            self._check(features, len(images))
            self._checked = True
        return features

    def verify(self, image_shape: Sequence[int]) -> None:
        """Run synthetic images of (height, width, channels) through the extractor and check the features."""
        height, width, channels = check_image_shape(image_shape)
        noise = generator(0, "dry run").standard_normal((4, channels, height, width)).astype(np.float32)
        images = torch.from_numpy(noise).to(self.head.weight)
        # One mode a module, not one for all: a user may keep a part of the extractor frozen in eval mode.
        modes = [(module, module.training) for module in self.modules()]
        self.eval()  # so that running statistics, where there are any, stay as they are
        try:
            with torch.no_grad():
                for batch in (images[:1], images):  # a stray squeeze() shows only in a batch of one
                    self._check(self.extractor(batch), len(batch))
        except RuntimeError as error:
            raise InputError(
                f"the extractor fails on images of {height}x{width} with {channels} channels, given as "
                f"(n, {channels}, {height}, {width}): {error}"
            ) from error
        finally:
            for module, training in modes:
                module.training = training
        self._checked = True

    def _check(self, features: object, n: int) -> None:
        expected = (n, self.feature_size)
        if not isinstance(features, torch.Tensor) or not features.is_floating_point():
            kind = features.dtype if isinstance(features, torch.Tensor) else type(features).__name__
            raise InputError(f"the extractor must return one tensor of floats, of shape {expected}, not {kind}")
        if tuple(features.shape) != expected:
            raise InputError(
                f"the extractor returned features of shape {tuple(features.shape)} for {n} images; "
                f"feature_size={self.feature_size} asks for {expected}"
            )
        if not bool(features.isfinite().all()):
            raise InputError("the extractor returned features that are NaN or infinite")
        if self.nonnegative and bool((features < 0).any()):
            raise InputError(
                f"the extractor returned a negative feature ({float(features.min()):.3g}), but nonnegative=True says "
                f"that it ends in a ReLU"
            )


def check_image_shape(image_shape: Sequence[int], at_least: int = 1, model: str = "the model") -> tuple[int, int, int]:
    """Return (height, width, channels) checked; an ``InputError`` says why a model cannot be built for them."""
    shape = tuple(image_shape)
    if len(shape) != 3 or any(not isinstance(size, int | np.integer) or size < 1 for size in shape):
        raise InputError(f"image_shape must be (height, width, channels), three whole numbers > 0, not {shape}")
    height, width, channels = (int(size) for size in shape)
    if min(height, width) < at_least:
        raise InputError(
            f"{model} needs images of at least {at_least}x{at_least}, not {height}x{width} "
            f"(image_shape is height, width, channels)"
        )
    return height, width, channels
