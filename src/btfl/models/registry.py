"""Models by name, with initial weights that are a pure function of the seed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from btfl.errors import InputError, UnknownNameError
from btfl.models.cct4 import cct4
from btfl.models.cnn import cnn
from btfl.models.mlp import mlp
from btfl.models.network import Network, check_image_shape
from btfl.models.resnet20 import resnet20
from btfl.randomness import generator

Factory = Callable[..., Network]  # (image_shape, classes, **options)

MODELS: dict[str, Factory] = {"cnn": cnn, "resnet20": resnet20, "cct4": cct4, "mlp": mlp}


def build(name: str, image_shape: Sequence[int], classes: int, seed: int, **options: object) -> Network:
    """Build the model for images of (height, width, channels); same arguments, same weights.

    ``name`` is one of ``MODELS``, or ``"package.module:Factory"`` for a model of your own: a callable that
    takes ``image_shape`` and ``classes`` (and the options, if any) and returns a ``Network``. The caller's
    torch generator is left as it was.
    """
    factory = _find(name)
    shape = check_image_shape(image_shape)
    _check_options(name, factory, options)
    with torch_draws(seed, "init", name):
        network: object = factory(shape, classes, **options)
        if not isinstance(network, Network):
            raise InputError(
                f"model '{name}' returned a {type(network).__name__}; it must return a btfl.models.Network"
            )
        network.verify(shape)
    return network


@contextmanager
def torch_draws(seed: int, *purpose: str | int) -> Iterator[None]:
    """Let torch's own draws (default initialisation, dropout) follow from (seed, purpose) inside the block.

    Torch's layers can only draw from its global generator. That of the CPU is borrowed for the block and
    given back as it was, so nothing outside can tell; another thread that draws meanwhile could, so use
    processes.
    """
    word = int(generator(seed, *purpose).integers(2**63))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(word)
        yield


def _find(name: str) -> Factory:
    if name in MODELS:
        return MODELS[name]
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise UnknownNameError("model", name, MODELS)
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"model '{name}': write a model of your own as 'package.module:Factory'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something it imports itself is not
        raise InputError(
            f"model '{name}': there is no module '{error.name}'. Install it, or put its folder on PYTHONPATH"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        state = "has no" if factory is None else "has a value, not a callable, as"
        raise InputError(f"model '{name}': the module '{module_name}' {state} '{attribute}'")
    return factory  # type: ignore[no-any-return]


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
