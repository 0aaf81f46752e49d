"""The training loop itself, shared by all recipes, and what it runs on: device, precision, compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

import torch
from torch import nn

from btfl.data.source import LabelledImages
from btfl.errors import InputError
from btfl.models import Network, build, torch_draws
from btfl.randomness import generator
from btfl.recipes.base import Recipe
from btfl.recipes.images import shuffled_batches
from btfl.recipes.settings import Precision, TrainingSettings

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(features, logits, labels) -> mean loss over the batch."""


def plain_loss(settings: TrainingSettings) -> Loss:
    """Cross-entropy, with the published program's pull of the features towards zero if it is asked for."""

    def loss(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        value = nn.functional.cross_entropy(logits, labels)
        if settings.feature_l1:
            value = value + settings.feature_l1 * features.abs().sum() / len(features)
        return value

    return loss


@lru_cache(maxsize=4)
def _workbench(
    model: str,
    options: str,
    image_shape: tuple[int, int, int],
    classes: int,
    precision: Precision,
    compiled: bool,
    device: str,
) -> Network:
    network: Network = build(model, image_shape, classes, 0, **json.loads(options))
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if (precision, compiled, device) != ("fp32", False, "cpu"):
        _equip(network.extractor, precision, compiled, device)
    return network


def workbench(recipe: Recipe) -> Network:
    """Give a network of the recipe's shape to load weights into: one a process, its content is the caller's."""
    settings = recipe.settings
    check_hardware(settings)
    options = json.dumps(dict(settings.model_options), sort_keys=True)
    shape, classes = recipe.image_shape, recipe.classes
    return _workbench(settings.model, options, shape, classes, settings.precision, settings.compile, _device)


def first_network(recipe: Recipe) -> Network:
    """Give a network with the recipe's initial weights, a function of the seed."""
    settings = recipe.settings
    return build(settings.model, recipe.image_shape, recipe.classes, settings.seed, **settings.model_options)


_device = "cpu"  # where extractors of this process run


@contextmanager
def training_on(device: str) -> Iterator[None]:
    """Let extractors run on a device of torch's, ``cuda`` say, inside the block."""
    global _device
    before, _device = _device, device
    try:
        yield
    finally:
        _device = before


def _equip(extractor: nn.Module, precision: Precision, compiled: bool, device: str) -> None:
    """Put the extractor on a device; in training mode it also computes at the precision, and compiled if asked.

    Images go in and features come out on the CPU and in fp32, so that no recipe needs to know. In evaluation mode the
    extractor computes as it will at test time: bundles hold statistics of the very features that are seen there.
    """
    extractor.to(device)
    plain = extractor.forward
    quick = torch.compile(plain) if compiled else plain

    def forward(images: torch.Tensor) -> torch.Tensor:
        images = images.to(device)
        if not extractor.training:
            return plain(images).cpu()  # type: ignore[no-any-return]
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            features: torch.Tensor = quick(images)
        return features.float().cpu()

    extractor.forward = forward


_ISA = "ONEDNN_MAX_CPU_ISA"
_BF16_TRIAL = """
import torch
from torch import nn
layers = nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.Flatten(), nn.Linear(32 * 16 * 16, 64))
with torch.autocast("cpu", torch.bfloat16):
    features = layers.to(memory_format=torch.channels_last)(torch.randn(8, 3, 16, 16))
features.float().sum().backward()
"""
_COMPILE_TRIAL = """
import torch
torch.compile(torch.nn.Linear(4, 4))(torch.ones(2, 4)).sum().backward()
"""


def check_hardware(settings: TrainingSettings) -> None:
    """Find out whether this machine can do what the settings ask for, before it is in the middle of it.

    A processor that announces bf16 instructions and does not allow them kills the process that tries; so the trial is
    made in a process of its own, once.
    """
    if settings.precision == "bf16" and _device == "cpu" and (ending := _try(_BF16_TRIAL)):
        hint = "" if _ISA in os.environ else f" set {_ISA}=AVX512_CORE_BF16 in the environment and try again, or"
        raise InputError(
            f"training in bf16 does not work on this processor: a small trial ended with {ending}. If its instructions "
            f"for bf16 matrices are the cause,{hint} leave the precision at fp32"
        )
    if settings.compile and (ending := _try(_COMPILE_TRIAL)):
        raise InputError(
            f"torch.compile does not work on this machine: a small trial ended with {ending}. It needs a C++ compiler "
            "(g++, say); install one, or leave compile at false"
        )


@cache
def _try(script: str) -> str:
    """Run a script in a process of its own; give nothing if it ends well, else how it ended."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["an error"])[-1]


def make_optimiser(settings: TrainingSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Give a fresh optimiser; momentum and moments start anew in every round, as clients come and go."""
    if settings.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def train_network(
    network: Network,
    data: LabelledImages,
    epochs: int,
    settings: TrainingSettings,
    loss: Loss,
    *purpose: str | int,
    only: nn.Module | None = None,
) -> dict[str, float]:
    """Train all of the network, or ``only`` a part of it; give the mean loss and accuracy of the last epoch.

    ``purpose`` (what, round, client) is what the shuffling, the augmentation and any dropout are drawn for.
    """
    network.train()
    optimiser = make_optimiser(settings, (only or network).parameters())
    rng = generator(settings.seed, *purpose)
    total, right = 0.0, 0
    with torch_draws(settings.seed, "dropout", *purpose):
        for _ in range(epochs):
            total, right = 0.0, 0
            for images, labels in shuffled_batches(data, settings.batch, rng, settings.augment):
                optimiser.zero_grad(set_to_none=True)
                features = network.features(images)
                logits = network.head(features)
                value = loss(features, logits, labels)
                value.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += float(value.detach()) * len(labels)
                right += int((logits.detach().argmax(1) == labels).sum())
    return {"loss": total / len(data), "accuracy": right / len(data)}


def train_head(
    head: nn.Linear,
    network: Network,
    data: LabelledImages,
    epochs: int,
    settings: TrainingSettings,
    *purpose: str | int,
    onto: nn.Linear | None = None,
) -> None:
    """Train a head alone, on the features of a frozen extractor.

    ``onto``: its logits are added to those of this frozen head.
    """
    network.eval()
    optimiser = make_optimiser(settings, head.parameters())
    rng = generator(settings.seed, *purpose)
    for _ in range(epochs):
        for images, labels in shuffled_batches(data, settings.batch, rng, settings.augment):
            with torch.no_grad():
                features = network.features(images)
                base = None if onto is None else onto(features)
            optimiser.zero_grad(set_to_none=True)
            logits = head(features) if base is None else base + head(features)
            nn.functional.cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
