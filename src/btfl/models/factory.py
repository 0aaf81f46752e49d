"""Building models by name, with initial weights that are a pure function of the seed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from btfl.errors import BtflError, InputError, UnknownNameError
from btfl.imports import load_object, load_own
from btfl.models.names import MODELS
from btfl.models.network import Network, check_shape
from btfl.randomness import generator

Factory = Callable[..., Network]  # (sample_shape, classes, **options)


def build(name: str, sample_shape: Sequence[int], classes: int, seed: int, **options: object) -> Network:
    """Build a model; the same arguments give the same weights, and the caller's torch generator is left as it was.

    Parameters
    ----------
    name : one of ``MODELS``, or ``"package.module:Factory"`` for a model of your own: a callable that takes
        ``sample_shape`` and ``classes`` (and the options, if any) and returns a ``Network``
    sample_shape : (height, width, channels) of images, (time, channels) of signals, or (d,) of vectors
    classes : how many, at least 2
    seed : random seed of the initial weights
    options : the model's own, for example ``width`` of resnet20

    Example
    -------
    >>> network = build("mlp", sample_shape=(8, 8, 1), classes=10, seed=0, hidden=32)
    >>> network.feature_size
    64
    """
    factory = _find(name)
    shape = check_shape(sample_shape)
    _check_options(name, factory, options)
    with torch_draws(seed, "init", name):
        try:
            network: object = factory(shape, classes, **options)
        except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
            if not options or isinstance(error, BtflError):
                raise
            raise InputError(f"model '{name}' cannot be built with {options}: {error}") from error
        if not isinstance(network, Network):
            raise InputError(
                f"model '{name}' returned a {type(network).__name__}; it must return a btfl.models.Network"
            )
        network.verify(shape)
    return network


@contextmanager
def torch_draws(seed: int, *purpose: str | int) -> Iterator[None]:
    """Derive torch's own draws (default initialisation, dropout) from (seed, purpose) inside the block.

    Torch's layers can only draw from its global generator. The CPU's is seeded for the block and restored after it,
    so that nothing outside is affected, except another thread that draws meanwhile: use processes.
    """
    word = int(generator(seed, *purpose).integers(2**63))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(word)
        yield


def _find(name: str) -> Factory:
    if name in MODELS:
        return load_own(MODELS[name])  # type: ignore[no-any-return]
    if ":" not in name:
        raise UnknownNameError("model", name, MODELS)
    return load_object(name, "model", wanted="a callable")  # type: ignore[no-any-return]


def _check_options(name: str, factory: Factory, options: dict[str, object]) -> None:
    """Refuse a mistyped option here, where a TypeError from inside the factory cannot be mistaken for one."""
    signature = inspect.signature(factory)
    try:
        signature.bind((1, 1, 1), 2, **options)
    except TypeError as error:
        known = list(signature.parameters)[2:]
        raise InputError(
            f"model '{name}' does not take these options ({error}). It takes: {', '.join(known) or 'none'}"
        ) from error
