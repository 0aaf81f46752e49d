"""For users of plain PyTorch: features of any module, and backbone, bundle and method as one module.

Needs torch and the core, nothing else of btfl.

    z = btfl.torch.features(backbone, batches)                   # (n, d) numpy, for Summary.of and ClientBundle.of
    model = btfl.torch.Adapted(backbone, btfl.Coherent(bundle))  # inputs in, probabilities out
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.methods.base import Method

__all__ = ["Adapted", "check_features", "features"]

_AT_ONCE = 256  # samples of an array that go through a module together


class Adapted(nn.Module):
    """A backbone under a method of btfl: inputs in, probabilities out, with a memory of the stream.

    The samples of a stream go in in their order, in batches of any size; an empty batch is no sample. The backbone is
    put into evaluation mode and stays there, and no gradient is kept: nothing is trained at test time.

    Parameters
    ----------
    backbone : a module from inputs (n, ...) to features (n, dimensions), the one that the bundle was made with
    method : a method that takes features, built for the client's bundle: ``btfl.Coherent(bundle)``
    dtype : of the probabilities. The default is what the method itself gives, to the bit; devices without double
        precision need ``torch.float32``

    Examples
    --------
    >>> import numpy as np, torch, btfl, btfl.torch
    >>> z, y = np.random.default_rng(0).normal(size=(60, 8)), np.arange(60) % 3
    >>> own, others = btfl.Summary.of(z[:30], y[:30], 3), btfl.Summary.of(z[30:], y[30:], 3)
    >>> bundle = btfl.ClientBundle.of(np.eye(3, 8), 2 * np.eye(3, 8), own, own + others, features=z[:30])
    >>> model = btfl.torch.Adapted(torch.nn.Flatten(), btfl.Coherent(bundle))
    >>> model(torch.randn(5, 2, 4)).shape
    torch.Size([5, 3])
    >>> model.state["seen"]
    5
    """

    backbone: nn.Module

    def __init__(self, backbone: nn.Module, method: Method, *, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        if not isinstance(backbone, nn.Module):
            raise InputError(f"the backbone must be a torch.nn.Module, not a {type(backbone).__name__}")
        if isinstance(method, ClientBundle):
            raise InputError("give a method for the bundle, not the bundle itself: btfl.Coherent(bundle)")
        if not isinstance(method, Method) or method.takes != "features":
            raise InputError("the method must be one that takes features, built for a bundle: btfl.Coherent(bundle)")
        if not dtype.is_floating_point:
            raise InputError(f"probabilities are floating-point numbers, not {dtype}")
        self.backbone, self.method, self.dtype = backbone, method, dtype
        self.train(False)

    @property
    def bundle(self) -> ClientBundle:
        """What the client keeps: both heads, likelihoods and sums."""
        return self.method.bundle

    @torch.no_grad()
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (n, classes) probabilities for the next n samples of the stream, on the device of the features."""
        if len(inputs) == 0:
            return torch.empty((0, self.bundle.classes), dtype=self.dtype, device=inputs.device)
        found = check_features(self.backbone(inputs), len(inputs), self.bundle.dimensions)
        probabilities = self.method.predict(found.detach().to("cpu", torch.float64).numpy())
        return torch.from_numpy(probabilities).to(device=found.device, dtype=self.dtype)

    def train(self, mode: bool = True) -> Adapted:
        """Stay in evaluation mode, whatever the mode asked for: a deployed model is not trained."""
        return super().train(False)

    @property
    def trace(self) -> Mapping[str, NDArray[Any]]:
        """Why each sample of the last batch was decided as it was: the method's own trace."""
        return self.method.trace

    @property
    def state(self) -> dict[str, Any]:
        """The memory of the stream as plain JSON; it is no part of ``state_dict``, which holds the weights."""
        return self.method.state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.method.restore(state)

    def reset(self) -> None:
        """Forget the stream."""
        self.method.reset()

    def extra_repr(self) -> str:
        """Say which method and bundle it has; torch shows the backbone itself."""
        return f"(method): {self.method!r}"


def features(module: nn.Module, batches: Iterable[Any]) -> NDArray[np.float32]:
    """Return the features (n, d) of a module for all samples, in their order.

    The module runs in evaluation mode, without gradients and on its own device, and is left in the modes it was in.

    Parameters
    ----------
    module : from inputs (n, ...) to features (n, d), of any sign
    batches : a tensor or an array of all inputs; or batches of them, such as a ``DataLoader`` gives: a tensor each, or
        a tuple whose first entry is one. A loader that shuffles has no order that labels could be in

    Examples
    --------
    >>> import torch, btfl.torch
    >>> btfl.torch.features(torch.nn.Flatten(), torch.ones(5, 2, 3)).shape
    (5, 6)
    """
    device = next((weights.device for weights in module.parameters()), torch.device("cpu"))
    parts: list[NDArray[np.float32]] = []
    with _evaluation(module), torch.no_grad():
        for inputs in _inputs(batches):
            if len(inputs) == 0:
                continue
            width = parts[0].shape[1] if parts else None
            found = check_features(module(inputs.to(device)), len(inputs), width)
            parts.append(found.to("cpu", torch.float32).numpy())
    if not parts:
        raise InputError("there is no sample in these batches, so there are no features")
    return np.concatenate(parts)


def _inputs(batches: Iterable[Any]) -> Iterator[torch.Tensor]:
    if isinstance(batches, np.ndarray):
        batches = torch.from_numpy(batches)
    if isinstance(batches, torch.Tensor):
        batches = [batches[i : i + _AT_ONCE] for i in range(0, len(batches), _AT_ONCE)]
    for batch in batches:
        inputs = batch[0] if isinstance(batch, tuple | list) and len(batch) else batch
        if isinstance(inputs, np.ndarray):
            inputs = torch.from_numpy(inputs)
        if not isinstance(inputs, torch.Tensor) or inputs.ndim == 0:
            raise InputError(f"a batch must be a tensor of inputs (n, ...), not a {type(inputs).__name__}")
        yield inputs


def check_features(found: Any, samples: int, width: int | None = None, what: str = "the module") -> torch.Tensor:
    """Return what a module gave if that is features (n, d), else raise an ``InputError`` that says what it is.

    Parameters
    ----------
    found : what the module returned
    samples, width : n, and d if it is known
    what : the module, for error messages
    """
    if not isinstance(found, torch.Tensor):
        raise InputError(
            f"{what} returned a {type(found).__name__}, not one tensor of features (n, d): wrap it in a module "
            f"that picks the tensor"
        )
    shape = tuple(found.shape)
    if len(shape) != 2 or shape[0] != samples or shape[1] == 0:
        raise InputError(
            f"{what} returned {shape} for {samples} samples, not features of shape (n, d): take the mean over "
            f"positions, or put nn.Flatten() behind it"
        )
    if not found.is_floating_point():
        raise InputError(f"{what} returned {found.dtype}, not floating-point features")
    if width is not None and shape[1] != width:
        raise InputError(f"{what} returned {shape[1]} features a sample, but {width} are expected")
    return found


@contextmanager
def _evaluation(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode inside the block; each of its parts gets its own mode back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
