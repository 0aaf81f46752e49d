"""DP-SGD within a client (Abadi et al., 2016): what a record can change in a step is bounded, and hidden by noise.

A step: every record is in the batch with the same probability, independently of all others (Poisson); each record's
gradient, computed by ``opacus``, is clipped to the length C; their sum gets Gaussian noise of deviation z C, and is
divided by the size that a batch is planned to have. Probability, number of steps and divisor are the same for every
client and follow from ``client_samples``, not from how many records it has: that number is protected, too. So the
longer steps of clients with more records stand for the weights that FedAvg gives to them.

Batches, augmentation and noise are drawn from the system's entropy, or from the seed in a simulation: who knows which
records are in a batch would not be fooled by sampling.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.data.source import Samples
from btfl.errors import InputError
from btfl.models import Network, build, torch_draws
from btfl.models.inputs import to_tensor
from btfl.pixels.images import crop_and_flip
from btfl.randomness import generator
from btfl.recipes.base import Recipe
from btfl.recipes.noise_plan import planned_samples, sampling_of, steps_of
from btfl.recipes.privacy import noise_generator
from btfl.recipes.settings import TrainingSettings
from btfl.recipes.training import Loss, make_optimiser, plain_loss

AT_ONCE = 64
"""Records whose gradients are in memory together; larger batches are taken in parts."""


def train_records(
    network: Network,
    data: Samples,
    settings: TrainingSettings,
    loss: Loss,
    multiplier: float,
    round_: int,
    client: int,
) -> None:
    """Take one round's steps of DP-SGD on all of the network.

    Parameters
    ----------
    loss : the mean over a batch of a function of each record alone
    multiplier : z, the standard deviation of the noise in units of the clip
    round_, client : what the draws of a simulation are for
    """
    opacus = _library()
    network.train()
    expected = min(settings.batch, planned_samples(settings))
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    noise = noise_generator(settings, "gradients", round_, client)
    choice = noise_generator(settings, "batches", round_, client)
    deviation = multiplier * settings.record_clip / expected

    def add_noise(_: object) -> None:
        for weight in weights:
            assert weight.grad is not None
            drawn = torch.from_numpy(noise.normal(0.0, deviation, tuple(weight.shape)).astype(np.float32))
            # laid out in memory as the weight is, which the fused step takes for granted
            weight.grad = torch.empty_like(weight).copy_(weight.grad + drawn.to(weight.device))

    with _gradients_of_records(network), torch_draws(int(choice.integers(2**63)), "dropout"):
        # opacus would draw its noise from a generator of torch's, which has 32 bits of a seed: too few for a secret
        optimiser = opacus.optimizers.DPOptimizer(
            make_optimiser(settings, weights),
            noise_multiplier=0.0,
            max_grad_norm=settings.record_clip,
            expected_batch_size=expected,
        )
        optimiser.attach_step_hook(add_noise)
        for _ in range(steps_of(settings)):
            parts = list(_parts_of_batch(data, sampling_of(settings), choice, settings.augment))
            for _ in parts[1:]:
                optimiser.signal_skip_step(True)
            optimiser.signal_skip_step(False)
            for samples, labels in parts:
                _backward(network, weights, loss, samples, labels)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)


def poisson_batch(records: int, sampling: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the records of a batch, in ascending order: each of them is drawn independently of the others."""
    return np.flatnonzero(rng.random(records) < sampling)


def _parts_of_batch(
    data: Samples, sampling: float, rng: np.random.Generator, augment: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield a batch in parts that fit into memory; one part without records if nobody is drawn."""
    rows = poisson_batch(len(data), sampling, rng)
    for start in range(0, max(len(rows), 1), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        values = data.values[part]
        if augment and data.kind == "images" and len(part):
            values = crop_and_flip(values, rng)
        yield to_tensor(values), torch.from_numpy(data.labels[part])


def _backward(
    network: Network, weights: list[nn.Parameter], loss: Loss, samples: torch.Tensor, labels: torch.Tensor
) -> None:
    """Leave the gradient of each record with the weights; what is not finite counts as zero, as no clip bounds it."""
    if len(labels):
        features = network.features(samples)
        loss(features, network.head(features), labels).backward()  # type: ignore[no-untyped-call]
    for weight in weights:
        found: torch.Tensor | None = weight.grad_sample  # type: ignore[attr-defined]
        if found is None:  # no record was drawn, or the network does not use this weight
            weight.grad_sample = weight.new_zeros((len(labels), *weight.shape))  # type: ignore[attr-defined]
        else:
            torch.nan_to_num_(found, nan=0.0, posinf=0.0, neginf=0.0)


@contextmanager
def _gradients_of_records(network: Network) -> Iterator[None]:
    """Have ``opacus`` compute the gradient of each record inside the block, and leave nothing of it behind.

    Convolutions get their inputs laid out channels first: opacus 1.6 finds wrong gradients of them otherwise.
    """
    laid_out = [
        layer.register_forward_pre_hook(lambda _, inputs: tuple(each.contiguous() for each in inputs))
        for layer in network.modules()
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    ]
    hooks = _library().grad_sample.GradSampleHooks(network, loss_reduction="mean")
    try:
        with warnings.catch_warnings():  # the first layer's inputs are data, whose gradient nobody needs
            warnings.filterwarnings("ignore", "Full backward hook is firing")
            yield
    finally:
        hooks.cleanup()
        for hook in laid_out:
            hook.remove()


def check_model(recipe: Recipe) -> None:
    """Refuse a model whose gradients cannot be told apart by record, in a sentence."""
    settings = recipe.settings
    options = json.dumps(dict(settings.model_options), sort_keys=True)
    _check_model(settings.model, options, recipe.sample_shape, recipe.classes)


@lru_cache(maxsize=16)
def _check_model(model: str, options: str, sample_shape: tuple[int, ...], classes: int) -> None:
    opacus = _library()
    network = build(model, sample_shape, classes, 0, **json.loads(options)).train()
    advice = "take a model with GroupNorm or LayerNorm, such as cnn, resnet20, cnn1d or mlp"
    for name, layer in network.named_modules():
        refused = opacus.validators.ModuleValidator.VALIDATORS.get(type(layer), lambda _: [])
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) or refused(layer):
            raise InputError(
                f"privacy_mechanism=dp-sgd cannot train the model '{model}': its layer {name} "
                f"({type(layer).__name__}) mixes the samples of a batch or keeps statistics of them; {advice}"
            )
    try:
        alone, beside = (_gradient_beside(network, sample_shape, other) for other in (1, 2))
    except (NotImplementedError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"privacy_mechanism=dp-sgd cannot train the model '{model}': opacus does not find each record's gradient "
            f"({reason}); switch off its dropout if it has any, or {advice}"
        ) from error
    if not _alike(alone, beside):
        raise InputError(
            f"privacy_mechanism=dp-sgd cannot train the model '{model}': what it makes of a sample depends on the "
            f"others in the batch; {advice}"
        )


def _gradient_beside(network: Network, sample_shape: tuple[int, ...], other: int) -> list[torch.Tensor]:
    """Return the gradient of one synthetic record in a batch with another one; both must add up to the batch's."""
    *sizes, channels = sample_shape
    noise = generator(0, "dry run").standard_normal((3, *sizes, channels)).astype(np.float32)
    samples = torch.from_numpy(np.moveaxis(noise, -1, 1))[[0, other]]
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    network.zero_grad()
    with torch_draws(0, "dry run"), _gradients_of_records(network):
        _backward(network, weights, plain_loss(TrainingSettings()), samples, torch.tensor([0, 1]))
        records: list[torch.Tensor] = [weight.grad_sample for weight in weights]  # type: ignore[attr-defined]
        if not _alike([both.mean(0) for both in records], [_gradient(weight) for weight in weights]):
            raise ValueError("those of two records do not add up to their batch's")
        return [both[0].clone() for both in records]


def _gradient(weight: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _alike(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=1e-3, atol=1e-5) for one, other in zip(some, others, strict=True))


def _library() -> Any:
    try:
        import opacus
        import opacus.grad_sample
        import opacus.optimizers
        import opacus.validators
    except ImportError:
        raise InputError(
            "privacy_mechanism=dp-sgd needs a package that finds each record's gradient: pip install 'btfl[privacy]'"
        ) from None
    return opacus
