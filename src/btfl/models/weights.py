"""Weights as plain arrays: what clients and server exchange, what a bundle stores, and no torch in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from btfl.errors import InputError, listed


def to_arrays(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Copy the state dict: name -> float32 array, C-contiguous whatever memory format the module keeps."""
    return {
        name: np.array(tensor.detach().cpu().numpy(), dtype=np.float32, order="C")
        for name, tensor in module.state_dict().items()
    }


def load_arrays(module: nn.Module, arrays: Mapping[str, ArrayLike]) -> None:
    """Copy arrays into a module, or change nothing and raise an ``InputError`` that names the entries that do not fit.

    Parameters
    ----------
    module : keeps its dtype, device and memory format
    arrays : by the names of its state dict, as ``to_arrays`` returns them

    Example
    -------
    >>> load_arrays(network, to_arrays(other))
    """
    state: dict[str, torch.Tensor] = module.state_dict()
    faults = {
        "missing": [name for name in state if name not in arrays],
        "unexpected": [name for name in arrays if name not in state],
        "mis-shaped": [],
        "not numbers": [],
        "not finite": [],
    }
    ready: dict[str, NDArray[np.float32]] = {}
    for name in (name for name in state if name in arrays):
        array, shape = np.asarray(arrays[name]), tuple(state[name].shape)
        if array.dtype.kind not in "fiub":
            faults["not numbers"].append(f"{name} ({array.dtype})")
            continue
        if array.shape != shape:
            faults["mis-shaped"].append(f"{name} {array.shape} for {shape}")
            continue
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is named below
            ready[name] = np.array(array, dtype=np.float32, order="C")
        if not np.isfinite(ready[name]).all():
            faults["not finite"].append(name)
    if any(faults.values()):
        found = "; ".join(f"{fault}: {listed(names)}" for fault, names in faults.items() if names)
        raise InputError(f"these arrays do not fit {type(module).__name__}: {found}")
    with torch.no_grad():
        for name, values in ready.items():
            tensor = torch.from_numpy(values)
            # Counters, such as BatchNorm's, come back from an average as fractions; copy_ cuts those off.
            state[name].copy_(tensor if state[name].is_floating_point() else tensor.round())
