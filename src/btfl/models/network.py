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
    extractor : a module from images (n, channels, height, width), signals (n, channels, time) or vectors (n, d) to
        features (n, feature_size), of any sign. BTFL's likelihood reads a feature as "on" where it is above 0.55 and as
        "off" elsewhere, below zero too; Coherent reads its value
    feature_size : width of the features
    classes : number of classes, at least 2
    bias : whether the head has one; the published cnn and resnet20 have none
    nonnegative : whether the extractor ends in a ReLU. Its features are then checked for it, and so are the sums that
        clients upload

    The extractor's output is checked once, by ``verify`` or else at the first use, not on every batch.

    Example
    -------
    A model of your own is a factory of these lines; name it ``--model my_module:factory``::

        def factory(sample_shape: tuple[int, ...], classes: int) -> Network:
            extractor = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample_shape), 32), nn.ReLU())
            return Network(extractor, feature_size=32, classes=classes)

    ``sample_shape`` is (height, width, channels), (time, channels) or (d,).
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

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the head's logits, (n, classes), for samples as the extractor takes them."""
        logits: torch.Tensor = self.head(self.features(samples))
        return logits

    def features(self, samples: torch.Tensor) -> torch.Tensor:
        """Return the features of each sample, (n, feature_size)."""
        features: torch.Tensor = self.extractor(samples)
        # The check reads values, which a graph that is being exported does not have yet.
        if not self._checked and len(samples) > 0 and not torch.compiler.is_compiling():
            self._check(features, len(samples))
            self._checked = True
        return features

    def verify(self, sample_shape: Sequence[int]) -> None:
        """Run synthetic samples of this shape, channels last, through the extractor and check the features."""
        shape = check_shape(sample_shape)
        *sizes, channels = shape
        noise = generator(0, "dry run").standard_normal((4, channels, *sizes)).astype(np.float32)
        samples = torch.from_numpy(noise).to(self.head.weight)
        # One mode a module, not one for all: a user may keep a part of the extractor frozen in eval mode.
        modes = [(module, module.training) for module in self.modules()]
        self.eval()  # so that running statistics, where there are any, stay as they are
        try:
            with torch.no_grad():
                for batch in (samples[:1], samples):  # a stray squeeze() shows only in a batch of one
                    self._check(self.extractor(batch), len(batch))
        except RuntimeError as error:
            given, size = ", ".join(map(str, ("n", *samples.shape[1:]))), "x".join(map(str, shape))
            raise InputError(
                f"the extractor fails on {_KINDS[len(shape)]} of {size}, given as ({given}): {error}"
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
                f"the extractor returned features of shape {tuple(features.shape)} for {n} samples; "
                f"feature_size={self.feature_size} asks for {expected}"
            )
        if not bool(features.isfinite().all()):
            raise InputError("the extractor returned features that are NaN or infinite")
        if self.nonnegative and bool((features < 0).any()):
            raise InputError(
                f"the extractor returned a negative feature ({float(features.min()):.3g}), but nonnegative=True says "
                f"that it ends in a ReLU"
            )


_SIZES = {"images": ("height", "width", "channels"), "signals": ("time", "channels"), "vectors": ("d",)}
_FOR = {"images": "cnn, resnet20, cct4 or mlp", "signals": "cnn1d or mlp", "vectors": "mlp or linear"}
_KINDS = {len(sizes): kind for kind, sizes in _SIZES.items()}


def check_shape(sample_shape: Sequence[int], kind: str | None = None, model: str = "the model") -> tuple[int, ...]:
    """Return the shape of a sample checked; an ``InputError`` says why a model cannot be built for it.

    Parameters
    ----------
    sample_shape : (height, width, channels) of images, (time, channels) of signals, or (d,) of vectors
    kind : which of them the model is for; None: any
    model : its name, for error messages
    """
    shape = tuple(sample_shape)
    if len(shape) not in _KINDS or any(not isinstance(size, int | np.integer) or size < 1 for size in shape):
        wanted = " or ".join(f"({', '.join(sizes)}{',' * (len(sizes) == 1)})" for sizes in _SIZES.values())
        raise InputError(f"the shape of a sample must be {wanted}, whole numbers > 0, not {shape}")
    found = _KINDS[len(shape)]
    if kind is not None and found != kind:
        raise InputError(
            f"{model} is a model for {kind} ({', '.join(_SIZES[kind])}), but the samples are {found} of shape {shape}: "
            f"use {_FOR[found]}, or a model of your own"
        )
    return tuple(int(size) for size in shape)


def check_image_shape(image_shape: Sequence[int], at_least: int = 1, model: str = "the model") -> tuple[int, int, int]:
    """Return (height, width, channels) checked; an ``InputError`` says why a model cannot be built for them."""
    height, width, channels = check_shape(image_shape, "images", model)
    if min(height, width) < at_least:
        raise InputError(
            f"{model} needs images of at least {at_least}x{at_least}, not {height}x{width} "
            f"(image_shape is height, width, channels)"
        )
    return height, width, channels
